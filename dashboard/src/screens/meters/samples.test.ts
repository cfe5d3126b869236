import { expect, test } from "vitest";
import type { Terms } from "../../api/prices";
import { boundsOf, inOrder, largestOf, samples } from "./samples";

test("the samples go from 0 to slightly more than the largest quantity", () => {
  for (const largest of ["0.000000000001", "0.0007", "1", "999", "1250.5", "123456789012"]) {
    const found = samples(largest, []);
    expect(found[0]).toBe("0");
    const end = Number(found.at(-1));
    expect(end, largest).toBeGreaterThanOrEqual(Number(largest));
    expect(end, largest).toBeLessThan(Number(largest) * 1.4 + 1e-11);
    expect(inOrder(found)).toEqual(found);
    expect(found.length).toBeLessThanOrEqual(100);
    for (const quantity of found) expect(quantity).toMatch(/^\d+(\.\d{1,12})?$/);
  }
});

test("the samples include each bound and the next quantity above it", () => {
  const found = samples("1000", ["0", "123.5", "1000", "5000"]);
  for (const quantity of ["123.5", "123.500000000001", "1000", "1000.000000000001"]) expect(found).toContain(quantity);
  expect(found).not.toContain("5000");
  expect(samples("1000", Array.from({ length: 200 }, (_, index) => String(index + 0.5))).length).toBeLessThanOrEqual(100);
});

test("the bounds of tiers start after the included units", () => {
  const tiers = [
    { up_to: "10", unit_price: "2" },
    { up_to: null, unit_price: "1" },
  ];
  expect(boundsOf({ included_units: "5.5", model: "volume", tiers })).toEqual(["5.5", "15.5"]);
  expect(boundsOf({ package_size: 500, package_price: "1" }).slice(0, 3)).toEqual(["0", "500", "1000"]);
  expect(boundsOf({ overage_rate: "1" })).toEqual(["0"]);
});

test("a chart without usage shows the tiers", () => {
  const tiers = [
    { up_to: "10", unit_price: "2" },
    { up_to: "100", unit_price: "2" },
    { up_to: null, unit_price: "1" },
  ];
  const of = (terms: Terms) => largestOf(terms, []);
  expect(of({ model: "graduated", tiers, included_units: "5" })).toBe("205");
  expect(of({ package_size: 500 })).toBe("2500");
  expect(of({ unit_price: "1", per_units: 1000 })).toBe("1000000");
  expect(of({ included_units: "1000" })).toBe("2000");
});

test("a chart with usage shows the tiers up to four times the highest usage", () => {
  const terms: Terms = { package_size: 20 }; // some packages: 100
  expect(largestOf(terms, ["9", "70"])).toBe("100");
  expect(largestOf(terms, ["2", "10"])).toBe("40");
  expect(largestOf(terms, ["300"])).toBe("300");
  expect(largestOf(terms, ["0"])).toBe("100");
  expect(largestOf({ unit_price: "1" }, ["300"])).toBe("300"); // a straight line
});

test("quantities are in exact order, each once", () => {
  expect(inOrder(["10", "9.5", "10.0", "10.000000000001"])).toEqual(["9.5", "10", "10.000000000001"]);
});
