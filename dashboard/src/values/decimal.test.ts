import { expect, test } from "vitest";
import { decimals, grouped, minorDigits, shares, sum } from "./decimal";

test("every digit is shown", () => {
  expect(grouped("1284402.75")).toBe("1,284,402.75");
  expect(grouped("0.000000000001")).toBe("0.000000000001");
  expect(grouped("900719925474099312345.100")).toBe("900,719,925,474,099,312,345.100");
  expect(grouped("-1234")).toBe("−1,234");
  expect(grouped("999")).toBe("999");
});

test("zeros are added up to the decimals of a currency, and nothing is cut", () => {
  expect(grouped("30", 2)).toBe("30.00");
  expect(grouped("30.5", 2)).toBe("30.50");
  expect(grouped("0.125", 2)).toBe("0.125");
  expect([minorDigits("USD"), minorDigits("JPY"), minorDigits("KWD")]).toEqual([2, 0, 3]);
});

test("what is not a decimal is not shown as one", () => {
  for (const text of ["", "1e9", "NaN", "1.", ".5", "+1"]) expect(() => grouped(text)).toThrow("is not a decimal");
});

test("sums are exact", () => {
  expect(sum(["0.1", "0.2"])).toBe("0.3");
  expect(sum(["30", "0.80"])).toBe("30.80");
  expect(sum(["9007199254740993", "0.000000000001"])).toBe("9007199254740993.000000000001");
  expect(sum(["-0.05", "0.02"])).toBe("-0.03");
  expect(sum([])).toBe("0");
});

test("shares are of the largest", () => {
  expect(shares(["0", "5", "10", "-1"])).toEqual([0, 0.5, 1, 0]);
  expect(shares(["0", "0"])).toEqual([0, 0]);
});

test("decimals that are zero do not count", () => {
  expect(["30", "30.10", "30.00", "9.4046875"].map(decimals)).toEqual([0, 1, 0, 7]);
});
