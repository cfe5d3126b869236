import { parse, stringify } from "lossless-json";

/** Returns an object as JSON for editing. A number keeps every digit. */
export function objectText(object: unknown): string {
  return stringify(object, undefined, 2) ?? "{}";
}

/** Parses a typed object. If the text is not an object, wrong is the rule that it breaks. */
export function parseObject(text: string): { object: Record<string, unknown> } | { wrong: string } {
  let typed: unknown;
  try {
    typed = parse(text.trim() || "{}");
  } catch {
    return { wrong: "Must be valid JSON" };
  }
  if (typeof typed !== "object" || typed === null || Object.getPrototypeOf(typed) !== Object.prototype) return { wrong: "Must be a JSON object" };
  return { object: typed as Record<string, unknown> };
}
