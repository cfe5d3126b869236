import { expect, test } from "vitest";
import type { Schema } from "../../api/client";
import { arithmetic } from "./arithmetic";

type Step = Schema<"Step">;

const step = (name: Step["name"], amount: string, unit = "units"): Step => ({ name, amount, unit, description: "" });

const working = (amounts: { included?: string; base?: string; exact?: string; charge?: string } = {}) => [
  step("usage", "1250"),
  step("included_units", amounts.included ?? "1000"),
  step("overage_units", "250"),
  step("overage_rate", "0.02", "USD"),
  step("overage_charge", "5", "USD"),
  step("base_price", amounts.base ?? "25", "USD"),
  step("exact_charge", amounts.exact ?? "30", "USD"),
  step("charge", amounts.charge ?? amounts.exact ?? "30", "USD"),
];

test("a charge is written as arithmetic", () => {
  expect(arithmetic(working())).toEqual(["1,250 used", "1,000 included, 250 overage", "250 × 0.02 = 5.00", "+ base 25.00 = 30.00"]);
  expect(arithmetic(working(), "tokens").slice(0, 3)).toEqual(["1,250 tokens used", "1,000 tokens included, 250 tokens overage", "250 × 0.02 = 5.00"]);
});

test("parts that are zero are not written", () => {
  expect(arithmetic(working({ included: "0", base: "0" }))).toEqual(["1,250 used", "250 × 0.02 = 5.00"]);
});

test("rounding is shown if it changes the charge", () => {
  expect(arithmetic(working({ exact: "30.125", charge: "30.12" }))).toContain("rounded 30.12");
  expect(arithmetic(working()).join()).not.toContain("rounded");
});

test("a charge at a provider's own price is not written as arithmetic", () => {
  expect(arithmetic([step("usage", "1250"), step("provider_charge", "30", "USD")])).toEqual([]);
});

test("a charge at a price with a minimum is not written as arithmetic", () => {
  expect(arithmetic([...working(), step("minimum_charge", "40", "USD")])).toEqual([]);
});
