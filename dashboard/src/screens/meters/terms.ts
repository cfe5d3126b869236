import type { Schema } from "../../api/client";
import type { Terms } from "../../api/prices";
import { excess, isAmount, wrongAmount } from "../../values/decimal";
import { dimensionsOf, incompleteDimensions, typedDimensionsOf, type TypedDimensions } from "./dimensions";
import { incompleteRate, rateOf, sentFields, text, typedRateOf, type TermsField, type TypedRate } from "./rates";

/** The typed fields of a price. With prices by dimension, the fields of its own model are kept and not sent. */
export interface TypedTerms extends TypedRate, Record<PeriodFieldName, string>, TypedDimensions {
  currency: string;
}

type PeriodFieldName = "base_price" | "minimum_charge" | "maximum_charge";

export type PeriodField = TermsField<PeriodFieldName>;

export const basePrice: PeriodField = { name: "base_price", label: "Base price", description: "For each billing period, independent of usage" };

export const bounds: PeriodField[] = [
  { name: "minimum_charge", label: "Minimum charge", description: "For each billing period. Empty: none" },
  { name: "maximum_charge", label: "Maximum charge", description: "For each billing period. Empty: none" },
];

/** The fields of the whole price, independent of its model. */
const periodFields = [basePrice, ...bounds];

/** Returns the typed fields of a price, to edit its successor. Without one, only the currency and the model are set. */
export function typedOf(price: Schema<"Price"> | undefined, currency: string): TypedTerms {
  return {
    ...typedRateOf(price?.dimensions ? undefined : price),
    ...typedDimensionsOf(price?.dimensions),
    currency: price?.currency ?? currency,
    base_price: text(price?.base_price),
    minimum_charge: text(price?.minimum_charge),
    maximum_charge: text(price?.maximum_charge),
  };
}

/** Returns typed terms in the form that the API accepts. */
export function termsOf(typed: TypedTerms): Terms {
  const usage = typed.by.length > 0 ? { dimensions: dimensionsOf(typed) } : rateOf(typed);
  return { ...(typed.currency && { currency: typed.currency }), ...sentFields(typed, periodFields), ...usage };
}

/** Returns the rule that a field of the whole price breaks, or undefined. An empty field breaks no rule. */
export function wrongInPeriod(typed: TypedTerms, name: PeriodFieldName): string | undefined {
  const text = typed[name];
  const wrong = wrongAmount(text);
  if (wrong !== undefined || text === "" || name !== "maximum_charge") return wrong;
  if (excess(text, "0") === "0") return "Must be more than 0";
  const least = typed.minimum_charge;
  return isAmount(least) && excess(least, text) !== "0" ? "Must be at least the minimum charge" : undefined;
}

/** Returns the reason why the charge at typed terms cannot be calculated yet, or undefined. */
export function incomplete(typed: TypedTerms): string | undefined {
  if (!/^[A-Z]{3}$/.test(typed.currency)) return "Enter a currency first";
  if (periodFields.some(({ name }) => wrongInPeriod(typed, name))) return "A field is not a number";
  if (typed.by.length > 0) return incompleteDimensions(typed);
  if (typed.model === "overage" && typed.base_price === "" && typed.overage_rate === "") return "Enter a base price or an overage rate first";
  return incompleteRate({ ...typed, ...(typed.model === "overage" && typed.overage_rate === "" && { overage_rate: "0" }) });
}

