import type { Schema } from "../../api/client";
import { grouped, minorDigits } from "../../values/decimal";

type Step = Schema<"Step">;

/**
 * Returns the calculation of a charge as arithmetic on paper, part by part:
 * "1,250 tokens used", "1,000 tokens included, 250 tokens overage", "250 × 0.02 = 5.00", "+ base 25.00 = 30.00".
 * Returns an empty list for other calculations, such as a price with tiers, a minimum
 * or a maximum, or a provider's own price. Their steps show the whole calculation.
 */
export function arithmetic(steps: Step[], unit = ""): string[] {
  const stepNamed = (name: Step["name"]) => steps.find((step) => step.name === name);
  const [usage, included, overage, rate, overageCharge, base, exact, charge] = [
    stepNamed("usage"),
    stepNamed("included_units"),
    stepNamed("overage_units"),
    stepNamed("overage_rate"),
    stepNamed("overage_charge"),
    stepNamed("base_price"),
    stepNamed("exact_charge"),
    stepNamed("charge"),
  ];
  if (!usage || !included || !overage || !rate || !overageCharge || !base || !exact || !charge) return [];
  if (stepNamed("minimum_charge") ?? stepNamed("maximum_charge")) return [];
  const money = (step: Step) => grouped(step.amount, minorDigits(step.unit));
  const number = (step: Step) => grouped(step.amount);
  const units = (step: Step) => [number(step), unit].join(" ").trim();
  const parts = [`${units(usage)} used`];
  if (included.amount !== "0") parts.push(`${units(included)} included, ${units(overage)} overage`);
  parts.push(`${number(overage)} × ${number(rate)} = ${money(overageCharge)}`);
  if (base.amount !== "0") parts.push(`+ base ${money(base)} = ${money(exact)}`);
  if (charge.amount !== exact.amount) parts.push(`rounded ${money(charge)}`);
  return parts;
}
