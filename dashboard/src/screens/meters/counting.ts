import type { Schema } from "../../api/client";

type Counting = Schema<"Counting">;

/** What the form of a meter changes of it. */
type Typed = Pick<Counting, "aggregation" | "group_by">;

/** How a meter counts, in words. */
export function counting({ aggregation, group_by, value_property, filters = [] }: Typed & Partial<Counting>): string {
  const counted = aggregation === "count" ? "the number of events" : `the sum of ${value_property ? `the property ${value_property}` : "their values"}`;
  const grouped = group_by.length > 0 ? `${counted}, by ${group_by.join(", ")}` : counted;
  return filters.length > 0 ? `${grouped}, of events with ${filters.map(condition).join(" and ")}` : grouped;
}

/** A filter in one line. */
export function condition({ property, operator, values = [] }: Counting["filters"][number]): string {
  return [property, operator, ...values.map((value) => JSON.stringify(value))].join(" ");
}

/** The properties that were typed, one a line. */
export function properties(typed: string): string[] {
  return typed
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

/** Whether every event would be counted as before. */
export function sameCounting(one: Typed, other: Typed): boolean {
  return one.aggregation === other.aggregation && one.group_by.join("\n") === other.group_by.join("\n");
}

/** The property of an event that a path names. A property with the whole name takes precedence. */
export function propertyAt(properties: unknown, path: string): unknown {
  if (typeof properties !== "object" || properties === null) return undefined;
  if (Object.hasOwn(properties, path)) return (properties as Record<string, unknown>)[path];
  const [first = "", ...rest] = path.split(".");
  if (rest.length === 0 || !Object.hasOwn(properties, first)) return undefined;
  return propertyAt((properties as Record<string, unknown>)[first], rest.join("."));
}
