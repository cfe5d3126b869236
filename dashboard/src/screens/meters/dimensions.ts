import { stringify } from "lossless-json";
import type { Schema } from "../../api/client";
import { lines } from "./counting";
import { parseValue, valueText, type FilterValue } from "./filterValues";
import { incompleteRate, rateOf, typedRateOf, type TypedRate } from "./rates";

/** A price by dimension as the user types it. */
export interface TypedEntry {
  /** Identifies the entry while the user moves and removes entries. */
  id: number;
  /** The values of each property, one per line. */
  match: Record<string, string>;
  rate: TypedRate;
}

/** The prices by dimension as the user types them. */
export interface TypedDimensions {
  /** The properties by which usage is charged. Without any, all usage has one price. */
  by: string[];
  entries: TypedEntry[];
  /** Whether usage that no entry matches is charged at the rate other. */
  isOtherCharged: boolean;
  other: TypedRate;
}

export const mostEntries = 100;

let entries = 0;

/** Returns an entry with a new id, without values to match. */
export const newEntry = (rate: TypedRate = typedRateOf(undefined)): TypedEntry => ({ id: ++entries, match: {}, rate });

/** Returns the typed fields of prices by dimension, to edit their successor. Without prices, the lists are empty. */
export function typedDimensionsOf(dimensions: Schema<"PriceDimensions"> | undefined): TypedDimensions {
  const typed = ({ match, ...rate }: Schema<"DimensionPrice">): TypedEntry => ({
    ...newEntry(typedRateOf(rate)),
    match: Object.fromEntries(Object.entries(match).map(([property, values]) => [property, values.map(valueText).join("\n")])),
  });
  return { by: dimensions?.by ?? [], entries: dimensions?.prices.map(typed) ?? [], isOtherCharged: dimensions?.default !== undefined, other: typedRateOf(dimensions?.default) };
}

/** Returns the values that an entry matches, by property. */
function matchOf({ match }: TypedEntry, by: string[]): Map<string, FilterValue[]> {
  const values = new Map(by.map((property) => [property, lines(match[property] ?? "").map(parseValue)]));
  return new Map([...values].filter(([, of]) => of.length > 0));
}

/** Returns typed prices by dimension in the form that the API accepts. */
export function dimensionsOf({ by, entries, isOtherCharged, other }: TypedDimensions): Schema<"SentDimensions"> {
  const prices = entries.map((entry) => ({ match: Object.fromEntries(matchOf(entry, by)), ...rateOf(entry.rate) }));
  return { by, prices, ...(isOtherCharged && { default: rateOf(other) }) };
}

/** Returns the reason why the charge at prices by dimension cannot be calculated yet, or undefined. */
export function incompleteDimensions({ by, entries, isOtherCharged, other }: TypedDimensions): string | undefined {
  const index = entries.findIndex((entry) => matchOf(entry, by).size === 0 || incompleteRate(entry.rate));
  if (index >= 0) return `Complete price ${index + 1} first`;
  return isOtherCharged && incompleteRate(other) ? "Complete the price of all other usage first" : undefined;
}

/** Describes the usage that an entry matches in words. */
function matchText(entry: TypedEntry, by: string[]): string {
  return [...matchOf(entry, by)].map(([property, values]) => `${property} ${values.map((value) => valueText(value)).join(" or ")}`).join(", ");
}

/** A rate of typed terms with the usage that it charges. */
export interface NamedRate {
  key: string;
  /** The usage in words. "": all usage. */
  name: string;
  /** The rate. Undefined: the usage is unrated. */
  rate: TypedRate | undefined;
  hasFee: boolean;
  /** Example values of the usage. Undefined: no example was found. */
  example: Dimension | undefined;
}

/** Returns the rates of typed terms in order: one for all usage, or one per entry, then one for all other usage. */
export function ratesOf(typed: TypedRate & TypedDimensions): NamedRate[] {
  const { by, entries, isOtherCharged, other } = typed;
  const named = (key: string, name: string, rate: TypedRate | undefined, example: Dimension | undefined) => ({ key, name, rate, hasFee: rate?.model === "percentage" && rate.fixed_fee !== "", example });
  if (by.length === 0) return [named("all", "", typed, {})];
  return [
    ...entries.map((entry, index) => named(String(entry.id), matchText(entry, by) || `price ${index + 1}`, entry.rate, exampleOf(index, typed))),
    named("other", "all other usage", isOtherCharged ? other : undefined, otherExample(by)),
  ];
}

/** A value that no entry names. */
const unnamed = "any other";

export type Dimension = Record<string, FilterValue>;

const mostTries = 10_000;

/**
 * Returns a value for each property, so that the entry matches the values and no earlier entry does. Returns undefined
 * if there are no such values, or after too many tries.
 */
export function exampleOf(index: number, { by, entries }: Pick<TypedDimensions, "by" | "entries">): Dimension | undefined {
  const matches = entries.slice(0, index + 1).map((entry) => matchOf(entry, by));
  const isMatched = (values: Dimension) => matches.slice(0, index).some((match) => [...match].every(([property, of]) => of.some((value) => isSame(value, values[property]!))));
  const choices = by.map((property) => matches[index]?.get(property) ?? [unnamed]);
  let tries = 0;
  const search = (chosen: FilterValue[]): Dimension | undefined => {
    if (tries >= mostTries) return undefined;
    if (chosen.length === by.length) {
      tries++;
      const values = Object.fromEntries(by.map((property, at) => [property, chosen[at]!]));
      return isMatched(values) ? undefined : values;
    }
    for (const value of choices[chosen.length]!) {
      const found = search([...chosen, value]);
      if (found) return found;
    }
    return undefined;
  };
  return search([]);
}

/** Returns values that no entry names. */
const otherExample = (by: string[]): Dimension => Object.fromEntries(by.map((property) => [property, unnamed]));

/** Reports whether two values are equal and have the same type. */
const isSame = (a: FilterValue, b: FilterValue) => stringify(a) === stringify(b);
