import type { Schema } from "../../api/client";
import { excess, minorDigits, product, rounded, shortest, sum } from "../../values/decimal";

type Step = Schema<"Step">;

export interface Terms {
  base: string;
  included: string;
  rate: string;
  currency: string;
}

/** Reports whether a price has only a base price, included units and an overage rate. */
export const isShort = (price: Schema<"Price">) => price.model === "overage" && price.minimum_charge === undefined && price.maximum_charge === undefined;

/**
 * What usage is charged at a price, step by step as the API explains it:
 * base price + (usage beyond the included units) × overage rate, rounded once,
 * half to even, to the currency's smallest unit.
 */
export function charge({ base, included, rate, currency }: Terms, usage: string): Step[] {
  const overage = excess(usage, included);
  const overageCharge = product(overage, rate);
  const exact = shortest(sum([overageCharge, base]));
  const step = (name: Step["name"], amount: string, unit: string): Step => ({ name, amount: shortest(amount), unit, description: "" });
  return [
    step("usage", usage, "units"),
    step("included_units", included, "units"),
    step("overage_units", overage, "units"),
    step("overage_rate", rate, currency),
    step("overage_charge", overageCharge, currency),
    step("base_price", base, currency),
    step("exact_charge", exact, currency),
    step("charge", rounded(exact, minorDigits(currency)), currency),
  ];
}
