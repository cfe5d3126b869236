import { expect, test } from "vitest";
import type { Schema } from "../../api/client";
import { models, newTier, wrongInRate, wrongTier, type Model } from "./rates";
import { incomplete, termsOf, typedOf, wrongInPeriod, type TypedTerms } from "./terms";

const empty = typedOf(undefined, "USD");
const typed = (part: Partial<TypedTerms>) => ({ ...empty, ...part });
const price: Schema<"Price"> = { version: 1, base_price: "0", included_units: "0", overage_rate: "0", model: "overage", description: "", currency: "CHF", effective_from: null, created_at: "2026-11-01T00:00:00Z" };

test("only the fields of the model are sent, and only if they are not empty", () => {
  const all = typed({ base_price: "1", overage_rate: "2", unit_price: "3", per_units: "1000000", package_size: "5", package_price: "6", percent: "7", fixed_fee: "8", maximum_charge: "9", tiers: [{ ...newTier, unit_price: "10" }] });
  const of = (model: Model) => termsOf({ ...all, model });
  const common = { base_price: "1", maximum_charge: "9", currency: "USD" };
  expect(of("overage")).toEqual({ model: "overage", ...common, overage_rate: "2" });
  expect(of("per_unit")).toEqual({ model: "per_unit", ...common, unit_price: "3", per_units: 1_000_000 });
  expect(of("package")).toEqual({ model: "package", ...common, package_size: 5, package_price: "6" });
  expect(of("percentage")).toEqual({ model: "percentage", ...common, percent: "7", fixed_fee: "8" });
  for (const model of ["graduated", "volume"] as const) {
    expect(of(model)).toEqual({ model, ...common, per_units: 1_000_000, tiers: [{ up_to: null, unit_price: "10" }] });
  }
});

test("the form of a price sends the terms of the price unchanged", () => {
  const tiers = [
    { up_to: "1000", unit_price: "0.02", flat_fee: "5" },
    { up_to: null as unknown as string, unit_price: "0.01", flat_fee: "0" },
  ];
  const prices: Schema<"Price">[] = [
    { ...price, base_price: "25", included_units: "1000", overage_rate: "0.0200000000001" },
    { ...price, model: "per_unit", unit_price: "2", per_units: 1_000_000, minimum_charge: "5" },
    { ...price, model: "graduated", tiers },
    { ...price, model: "package", package_size: 500, package_price: "3", maximum_charge: "8" },
    { ...price, model: "percentage", percent: "2.9", fixed_fee: "0.3" },
  ];
  for (const { version: _, description: __, effective_from: ___, created_at: ____, overage_rate, ...terms } of prices) {
    const sent = termsOf(typedOf({ ...price, ...terms, overage_rate }, "USD"));
    const shown = terms.tiers ? { tiers: [tiers[0], { up_to: null, unit_price: "0.01" }] } : {};
    expect(sent).toEqual({ ...terms, ...shown, ...(terms.model === "overage" && { overage_rate }) });
  }
});

test("the bound of a tier must be above the previous bound", () => {
  const tiers = [{ ...newTier, up_to: "1000" }, { ...newTier, up_to: "1000.0" }, newTier];
  expect([0, 1, 2].map((index) => wrongTier(tiers, index, "up_to"))).toEqual([undefined, "Must be more than 1000", undefined]);
  expect(wrongTier([{ ...newTier, up_to: "0" }, newTier], 0, "up_to")).toBe("Must be more than 0");
  expect(wrongTier([{ ...newTier, unit_price: "1,5" }], 0, "unit_price")).toContain("Must be a number");
});

test("a maximum charge must be above 0 and at least the minimum charge", () => {
  const maximum = (minimum_charge: string, maximum_charge: string) => wrongInPeriod(typed({ minimum_charge, maximum_charge }), "maximum_charge");
  expect([maximum("", "0"), maximum("10", "9.99"), maximum("10", "10"), maximum("", "")]).toEqual(["Must be more than 0", "Must be at least the minimum charge", undefined, undefined]);
});

test("a package size must be a whole number above 0", () => {
  expect(["0", "1.5", "-1"].map((package_size) => wrongInRate(typed({ package_size }), "package_size"))).not.toContain(undefined);
  expect(wrongInRate(typed({ package_size: "1000000000000" }), "package_size")).toBeUndefined();
});

test("terms are complete when no required field is empty", () => {
  const complete: Record<Model, Partial<TypedTerms>> = {
    overage: { base_price: "5" },
    per_unit: { unit_price: "1" },
    graduated: { tiers: [{ up_to: "10", unit_price: "2", flat_fee: "" }, { ...newTier, unit_price: "1" }] },
    volume: { tiers: [{ ...newTier, unit_price: "1" }] },
    package: { package_size: "10", package_price: "1" },
    percentage: { fixed_fee: "0.3" },
  };
  for (const model of Object.keys(models) as Model[]) {
    expect(incomplete(typed({ model })), model).toBeDefined();
    expect(incomplete(typed({ model, ...complete[model] })), model).toBeUndefined();
    expect(incomplete(typed({ model, ...complete[model], currency: "US" })), model).toBe("Enter a currency first");
  }
  expect(incomplete(typed({ model: "graduated", tiers: [{ ...newTier, unit_price: "1" }, { ...newTier, unit_price: "1" }] }))).toBe("A tier is not complete");
});
