import { stringify } from "lossless-json";

/** The properties of a group, by name. Those of the group $other are unknown. */
export type GroupKey = { [property: string]: unknown };

/** Returns the value of a property as the API's filters write it: a string that reads like another JSON value is quoted. */
export function filterText(value: unknown): string {
  if (typeof value !== "string") return stringify(value ?? null)!;
  return isJSON(value) ? JSON.stringify(value) : value;
}

/** Returns the value of a property for screens. Null is none: events without the property have it. */
export function valueText(value: unknown): string {
  if (value === null || value === undefined) return "none";
  return value === "" || value === "none" ? JSON.stringify(value) : filterText(value);
}

function isJSON(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Reports whether a group is $other: the usage whose property values are unknown. */
export const isOther = (key: GroupKey) => "$other" in key;

/** Returns the values of a group, in order of their properties. */
export function groupText(key: GroupKey): string {
  if (isOther(key)) return "unknown values";
  const values = Object.entries(key)
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([, value]) => valueText(value));
  return values.join(" · ") || "all usage";
}
