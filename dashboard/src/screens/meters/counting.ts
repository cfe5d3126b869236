import { isLosslessNumber, stringify } from "lossless-json";
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

/** Reports whether a filter with the operator needs values. */
export const hasValues = (operator: Operator) => operator !== "exists" && operator !== "not_exists";

/** Describes in words how a meter counts. Filters that the user has not completed are skipped. */
export function counting({ aggregation, group_by, value_property, filters = [] }: Pick<Counting, "aggregation" | "group_by"> & Partial<Counting>): string {
  const counted = aggregation === "count" ? "the number of events" : `the sum of ${value_property ? `the property ${value_property}` : "their values"}`;
  const grouped = group_by.length > 0 ? `${counted}, by ${group_by.join(", ")}` : counted;
  const complete = filters.filter(isComplete);
  return complete.length > 0 ? `${grouped}, if ${complete.map(condition).join(" and ")}` : grouped;
}

/** Reports whether a filter has a property and the values that it needs. */
const isComplete = ({ property, operator, values = [] }: Counting["filters"][number]) => property !== "" && (values.length > 0 || !hasValues(operator));

/** Describes a filter in words. */
export function condition({ property, operator, values }: Counting["filters"][number]): string {
  const compared = (values ?? []).map((value) => stringify(value)).join(", ");
  return [property, operators[operator], compared].filter(Boolean).join(" ");
}

/** Returns the trimmed lines of a typed text, without empty ones. */
export function lines(typed: string): string[] {
  return typed
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

/** Returns the property that a path names. A property with the whole path as its name takes precedence. */
export function propertyAt(properties: object, path: string): unknown {
  const names = Object.hasOwn(properties, path) ? [path] : path.split(".");
  return names.reduce(fieldOf, properties);
}

/** Returns a field of an object. undefined: the value is no object or has no such field. */
function fieldOf(value: unknown, name: string): unknown {
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value) && !isLosslessNumber(value);
  return isObject && Object.hasOwn(value, name) ? (value as Record<string, unknown>)[name] : undefined;
}
