import type { Schema } from "../../api/client";
import { excess, isAmount, wrongAmount } from "../../values/decimal";

export type Model = NonNullable<Schema<"Price">["model"]>;

/** A tier as the user types it. The last tier has no bound. */
export interface TypedTier {
  up_to: string;
  unit_price: string;
  flat_fee: string;
}

/** The typed fields of a rate, by their names in the API. Fields of other models are kept and not sent. */
export interface TypedRate extends Record<RateFieldName, string> {
  model: Model;
  tiers: TypedTier[];
}

export type RateFieldName = "included_units" | "overage_rate" | "unit_price" | "package_price" | "percent" | "fixed_fee" | CountName;
type CountName = "per_units" | "package_size";

/** A field of a price's form. */
export interface TermsField<Name extends string> {
  name: Name;
  label: string;
  description: string;
  required?: boolean;
}

export type RateField = TermsField<RateFieldName>;

interface ModelText {
  title: string;
  rule: string;
}

/** The models with their titles, rules and fields. alone: the texts for a rate without a base price. */
export const models: Record<Model, ModelText & { fields: RateField[]; alone?: ModelText }> = {
  overage: {
    title: "Base + overage",
    rule: "A base price, and a rate for each unit above the included units",
    alone: { title: "Overage", rule: "A rate for each unit above the included units" },
    fields: [{ name: "overage_rate", label: "Overage rate", description: "For each unit above the included units" }],
  },
  per_unit: {
    title: "Per unit",
    rule: "Each unit costs the same",
    fields: [
      { name: "unit_price", label: "Unit price", description: "For each unit, or for as many units as follow", required: true },
      { name: "per_units", label: "Units for this price", description: "Such as 1000000 for a price per million. Empty: 1" },
    ],
  },
  graduated: {
    title: "Graduated tiers",
    rule: "Each unit costs the price of its own tier",
    fields: [{ name: "per_units", label: "Units for a tier's price", description: "Such as 1000000 for prices per million. Empty: 1" }],
  },
  volume: {
    title: "Volume tiers",
    rule: "All units cost the price of the tier that the usage reaches",
    fields: [{ name: "per_units", label: "Units for a tier's price", description: "Such as 1000000 for prices per million. Empty: 1" }],
  },
  package: {
    title: "Packages",
    rule: "Each started package costs the same",
    fields: [
      { name: "package_size", label: "Package size", description: "Units in a package", required: true },
      { name: "package_price", label: "Package price", description: "For each started package", required: true },
    ],
  },
  percentage: {
    title: "Percentage",
    rule: "A percentage of the usage, which is an amount of money, and a fee for each event",
    fields: [
      { name: "percent", label: "Percent", description: "2.9 is 2.9 % of the usage" },
      { name: "fixed_fee", label: "Fixed fee", description: "For each counted event" },
    ],
  },
};

export const included: RateField = { name: "included_units", label: "Included units", description: "Units that are not charged" };

/** Reports whether a model has tiers. */
export const isTiered = (model: Model) => model === "graduated" || model === "volume";

/** Returns the fields of a model. */
const rateFieldsOf = (model: Model) => [included, ...models[model].fields];

const counts: readonly string[] = ["per_units", "package_size"] satisfies CountName[];

export const mostTiers = 100;

export const newTier: TypedTier = { up_to: "", unit_price: "", flat_fee: "" };

/** Returns a value as the text of its field. */
export const text = (value: string | number | undefined) => (value === undefined ? "" : String(value));

/** Returns the typed fields of a rate, to edit its successor. Without a rate, only the model is set. */
export function typedRateOf(rate: Partial<Schema<"DimensionRate">> | undefined): TypedRate {
  const model = rate?.model ?? "overage";
  return {
    model,
    included_units: text(rate?.included_units),
    overage_rate: model === "overage" ? text(rate?.overage_rate) : "",
    unit_price: text(rate?.unit_price),
    per_units: text(rate?.per_units),
    package_size: text(rate?.package_size),
    package_price: text(rate?.package_price),
    percent: text(rate?.percent),
    fixed_fee: text(rate?.fixed_fee),
    tiers: rate?.tiers?.map(({ up_to, unit_price, flat_fee }) => ({ up_to: up_to ?? "", unit_price, flat_fee: flat_fee === "0" ? "" : flat_fee })) ?? [newTier],
  };
}

/** Returns the fields for a request, without empty ones. Counts are sent as numbers. */
export function sentFields<Name extends string>(typed: Record<Name, string>, fields: TermsField<Name>[]) {
  const used = fields.filter(({ name }) => typed[name] !== "");
  return Object.fromEntries(used.map(({ name }) => [name, counts.includes(name) ? Number(typed[name]) : typed[name]]));
}

/** Returns a typed rate in the form that the API accepts. */
export function rateOf(typed: TypedRate): Schema<"SentDimensionRate"> {
  const last = typed.tiers.length - 1;
  const tiers = typed.tiers.map(({ up_to, unit_price, flat_fee }, index) => ({ up_to: index === last ? null : up_to, unit_price, ...(flat_fee && { flat_fee }) }));
  return { model: typed.model, ...sentFields(typed, rateFieldsOf(typed.model)), ...(isTiered(typed.model) && { tiers }) } as Schema<"SentDimensionRate">;
}

/** Returns the rule that a field of a rate breaks, or undefined. An empty field breaks no rule. */
export function wrongInRate(typed: TypedRate, name: RateFieldName): string | undefined {
  const text = typed[name];
  if (!counts.includes(name)) return wrongAmount(text);
  return text === "" || /^[1-9]\d{0,12}$/.test(text) ? undefined : "Must be a whole number such as 1000";
}

/** Returns the rule that a field of a tier breaks, or undefined. An empty field breaks no rule. */
export function wrongTier(tiers: TypedTier[], index: number, name: keyof TypedTier): string | undefined {
  const text = tiers[index]![name];
  const wrong = wrongAmount(text);
  if (wrong !== undefined || text === "" || name !== "up_to" || index === tiers.length - 1) return wrong;
  const before = index === 0 ? "0" : tiers[index - 1]!.up_to;
  return isAmount(before) && excess(text, before) === "0" ? `Must be more than ${before}` : undefined;
}

/** Returns the reason why the charge at a typed rate cannot be calculated yet, or undefined. */
export function incompleteRate(typed: TypedRate): string | undefined {
  const { model, tiers } = typed;
  if (rateFieldsOf(model).some(({ name }) => wrongInRate(typed, name))) return "A field is not a number";
  const missing = models[model].fields.find(({ name, required }) => required && typed[name] === "");
  if (missing) return `Enter the ${missing.label.toLowerCase()} first`;
  if (model === "percentage" && typed.percent === "" && typed.fixed_fee === "") return "Enter a percentage or a fixed fee first";
  if (model === "overage" && typed.overage_rate === "") return "Enter the overage rate first";
  if (!isTiered(model)) return undefined;
  const names = Object.keys(newTier) as (keyof TypedTier)[];
  if (tiers.some((_, index) => names.some((name) => wrongTier(tiers, index, name)))) return "A tier is not complete";
  return tiers.some(({ up_to, unit_price }, index) => unit_price === "" || (up_to === "" && index < tiers.length - 1)) ? "A tier is not complete" : undefined;
}
