import { stringify } from "lossless-json";

/** The property values of a group, by name of the property. The values of the group $other are unknown. */
export type GroupKey = { [property: string]: unknown };

/** Returns the value of a property in the notation of the API's filters. A string that is valid JSON is quoted. */
export function filterText(value: unknown): string {
  if (typeof value !== "string") return stringify(value ?? null)!;
  return isJSON(value) ? JSON.stringify(value) : value;
}

/** Returns the value of a property for screens. null, the value of events without the property, is shown as none. */
export function valueText(value: unknown): string {
  if (value === null || value === undefined) return "none";
  return value === "" || value === "none" ? JSON.stringify(value) : filterText(value);
}

/** Reports whether a text is JSON. */
function isJSON(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

/** Reports whether a group is $other, the usage with unknown property values. */
export const isOther = (key: GroupKey) => "$other" in key;

/** Returns the values of a group as text, in the order of the property names. */
export function groupText(key: GroupKey): string {
  if (isOther(key)) return "unknown values";
  const values = Object.entries(key)
    .sort(([a], [b]) => a.localeCompare(b))
    .map(([, value]) => valueText(value));
  return values.join(" · ") || "all usage";
}
