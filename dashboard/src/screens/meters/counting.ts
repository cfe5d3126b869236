import { stringify } from "lossless-json";
import type { Schema } from "../../api/client";

type Counting = Schema<"Counting">;
export type Operator = Counting["filters"][number]["operator"];

/** The operators of filters, in words. */
export const operators: Record<Operator, string> = {
  eq: "is",
  ne: "is not",
  in: "is one of",
  not_in: "is none of",
  exists: "has a value",
  not_exists: "has no value",
  gt: "is greater than",
  gte: "is at least",
  lt: "is less than",
  lte: "is at most",
};

/** How a meter counts, in words. */
export function counting({ aggregation, group_by, value_property, filters = [] }: Pick<Counting, "aggregation" | "group_by"> & Partial<Counting>): string {
  const counted = aggregation === "count" ? "the number of events" : `the sum of ${value_property ? `the property ${value_property}` : "their values"}`;
  const grouped = group_by.length > 0 ? `${counted}, by ${group_by.join(", ")}` : counted;
  return filters.length > 0 ? `${grouped}, if ${filters.map(condition).join(" and ")}` : grouped;
}

/** A filter in words. */
export function condition({ property, operator, values }: Counting["filters"][number]): string {
  const compared = (values ?? []).map((value) => stringify(value)).join(", ");
  return [property, operators[operator], compared].filter(Boolean).join(" ");
}

/** The texts that were typed, one a line. */
export function lines(typed: string): string[] {
  return typed
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

/** The property of an event that a path names. A property with the whole name takes precedence. */
export function propertyAt(properties: unknown, path: string): unknown {
  if (typeof properties !== "object" || properties === null) return undefined;
  if (Object.hasOwn(properties, path)) return (properties as Record<string, unknown>)[path];
  const [first = "", ...rest] = path.split(".");
  if (rest.length === 0 || !Object.hasOwn(properties, first)) return undefined;
  return propertyAt((properties as Record<string, unknown>)[first], rest.join("."));
}
