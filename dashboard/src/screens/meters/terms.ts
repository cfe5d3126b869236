import type { Schema } from "../../api/client";
import type { Terms } from "../../api/prices";
import { excess, isAmount, wrongAmount } from "../../values/decimal";

export type Model = NonNullable<Schema<"Price">["model"]>;

/** A tier as it is typed. The last one has no bound. */
export interface TypedTier {
  up_to: string;
  unit_price: string;
  flat_fee: string;
}

/** The fields of a price as they are typed, by their names in the API. A field of another model is kept, and not sent. */
export interface TypedTerms extends Record<FieldName, string> {
  model: Model;
  currency: string;
  tiers: TypedTier[];
}

type FieldName = AmountName | CountName;
type AmountName = "base_price" | "included_units" | "overage_rate" | "unit_price" | "package_price" | "percent" | "fixed_fee" | "minimum_charge" | "maximum_charge";
type CountName = "per_units" | "package_size";

/** A field of a price's form. */
export interface TermsField {
  name: FieldName;
  label: string;
  description: string;
  required?: boolean;
}

/** The models, each with its name and its rule. */
export const models: Record<Model, { title: string; rule: string; fields: TermsField[] }> = {
  overage: {
    title: "Base + overage",
    rule: "A base price, and a rate for each unit above the included units",
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

export const base: TermsField[] = [
  { name: "base_price", label: "Base price", description: "For each billing period, independent of usage" },
  { name: "included_units", label: "Included units", description: "Included in the base price" },
];

export const bounds: TermsField[] = [
  { name: "minimum_charge", label: "Minimum charge", description: "For each billing period. Empty: none" },
  { name: "maximum_charge", label: "Maximum charge", description: "For each billing period. Empty: none" },
];

export const isTiered = (model: Model) => model === "graduated" || model === "volume";

export const fieldsOf = (model: Model) => [...base, ...models[model].fields, ...bounds];

const counts: readonly string[] = ["per_units", "package_size"] satisfies CountName[];

export const mostTiers = 100;

export const newTier: TypedTier = { up_to: "", unit_price: "", flat_fee: "" };

/** Returns the fields of a price for its successor, or empty fields. */
export function typedOf(price: Schema<"Price"> | undefined, currency: string): TypedTerms {
  const text = (value: string | number | undefined) => (value === undefined ? "" : String(value));
  const model = price?.model ?? "overage";
  return {
    model,
    currency: price?.currency ?? currency,
    base_price: text(price?.base_price),
    included_units: text(price?.included_units),
    overage_rate: model === "overage" ? text(price?.overage_rate) : "",
    unit_price: text(price?.unit_price),
    per_units: text(price?.per_units),
    package_size: text(price?.package_size),
    package_price: text(price?.package_price),
    percent: text(price?.percent),
    fixed_fee: text(price?.fixed_fee),
    minimum_charge: text(price?.minimum_charge),
    maximum_charge: text(price?.maximum_charge),
    tiers: price?.tiers?.map(({ up_to, unit_price, flat_fee }) => ({ up_to: up_to ?? "", unit_price, flat_fee: flat_fee === "0" ? "" : flat_fee })) ?? [newTier],
  };
}

/** Returns the terms that are typed, as the API takes them. */
export function termsOf(typed: TypedTerms): Terms {
  const sent: Record<string, unknown> = { model: typed.model, ...(typed.currency && { currency: typed.currency }) };
  for (const { name } of fieldsOf(typed.model)) {
    if (typed[name] !== "") sent[name] = counts.includes(name) ? Number(typed[name]) : typed[name];
  }
  if (isTiered(typed.model)) {
    const last = typed.tiers.length - 1;
    sent.tiers = typed.tiers.map(({ up_to, unit_price, flat_fee }, index) => ({ up_to: index === last ? null : up_to, unit_price, ...(flat_fee && { flat_fee }) }));
  }
  return sent as Terms;
}

/** Returns how to write a field, if it breaks a rule. An empty field breaks none. */
export function wrongField(typed: TypedTerms, name: FieldName): string | undefined {
  const text = typed[name];
  if (counts.includes(name)) return text === "" || /^[1-9]\d{0,12}$/.test(text) ? undefined : "Must be a whole number such as 1000";
  const wrong = wrongAmount(text);
  if (wrong !== undefined || text === "" || name !== "maximum_charge") return wrong;
  if (excess(text, "0") === "0") return "Must be more than 0";
  const least = typed.minimum_charge;
  return isAmount(least) && excess(least, text) !== "0" ? "Must be at least the minimum charge" : undefined;
}

/** The same for a field of a tier. */
export function wrongTier(tiers: TypedTier[], index: number, name: keyof TypedTier): string | undefined {
  const text = tiers[index]![name];
  const wrong = wrongAmount(text);
  if (wrong !== undefined || text === "" || name !== "up_to" || index === tiers.length - 1) return wrong;
  const before = index === 0 ? "0" : tiers[index - 1]!.up_to;
  return isAmount(before) && excess(text, before) === "0" ? `Must be more than ${before}` : undefined;
}

/** Returns why the charge of typed terms cannot be calculated yet, if so. */
export function incomplete(typed: TypedTerms): string | undefined {
  const { model, tiers } = typed;
  if (!/^[A-Z]{3}$/.test(typed.currency)) return "Enter a currency first";
  if (fieldsOf(model).some(({ name }) => wrongField(typed, name))) return "A field is not a number";
  const missing = models[model].fields.find(({ name, required }) => required && typed[name] === "");
  if (missing) return `Enter the ${missing.label.toLowerCase()} first`;
  if (model === "percentage" && typed.percent === "" && typed.fixed_fee === "") return "Enter a percentage or a fixed fee first";
  if (model === "overage" && typed.base_price === "" && typed.overage_rate === "") return "Enter a base price or an overage rate first";
  if (!isTiered(model)) return undefined;
  const names = Object.keys(newTier) as (keyof TypedTier)[];
  if (tiers.some((_, index) => names.some((name) => wrongTier(tiers, index, name)))) return "A tier is not complete";
  return tiers.some(({ up_to, unit_price }, index) => unit_price === "" || (up_to === "" && index < tiers.length - 1)) ? "A tier is not complete" : undefined;
}
