import { parse, stringify } from "lossless-json";

/** Metadata as a person edits it: JSON, in which a number keeps every digit. */
export function written(metadata: unknown): string {
  return stringify(metadata, undefined, 2) ?? "{}";
}

/** What was typed as metadata, or why it is none. */
export function metadataOf(text: string): { metadata: Record<string, unknown> } | { wrong: string } {
  let typed: unknown;
  try {
    typed = parse(text.trim() || "{}");
  } catch {
    return { wrong: "Must be valid JSON" };
  }
  if (typeof typed !== "object" || typed === null || Object.getPrototypeOf(typed) !== Object.prototype) return { wrong: "Must be a JSON object" };
  return { metadata: typed as Record<string, unknown> };
}
