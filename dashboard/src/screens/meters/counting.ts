import type { Schema } from "../../api/client";

type Counting = Schema<"Counting">;

/** How a meter counts, in words. */
export function counting({ aggregation, group_by }: Counting): string {
  const counted = aggregation === "count" ? "the number of events" : "the sum of their values";
  return group_by.length > 0 ? `${counted}, by ${group_by.join(", ")}` : counted;
}

/** The properties that were typed, one a line. */
export function properties(typed: string): string[] {
  return typed
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "");
}

/** Whether every event would be counted as before. */
export function sameCounting(one: Counting, other: Counting): boolean {
  return one.aggregation === other.aggregation && one.group_by.join("\n") === other.group_by.join("\n");
}
