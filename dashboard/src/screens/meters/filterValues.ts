import { LosslessNumber, stringify } from "lossless-json";

/** A value of a filter. A number keeps every digit. */
export type FilterValue = string | boolean | null | LosslessNumber;

const number = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

/**
 * Parses a value as the API's filters do. Text that is a JSON number, string, true, false or null is parsed as JSON.
 * Other text is a string.
 */
export function parseValue(text: string): FilterValue {
  if (text === "true" || text === "false") return text === "true";
  if (text === "null") return null;
  if (number.test(text)) return new LosslessNumber(text);
  return quotedString(text) ?? text;
}

/** Returns the string for which a text in quotes stands. undefined: the text is no JSON string. */
function quotedString(text: string): string | undefined {
  if (!text.startsWith('"')) return undefined;
  try {
    return JSON.parse(text) as string;
  } catch {
    return undefined;
  }
}

/** Returns the text that parseValue parses to the value. A string has no quotes if possible. */
export function valueText(value: unknown): string {
  if (typeof value !== "string") return stringify(value) ?? "";
  const plain = value !== "" && value === value.trim() && !/[\r\n]/.test(value) && parseValue(value) === value;
  return plain ? value : JSON.stringify(value);
}

/** Describes a value and its type in words. */
export function typedValue(value: FilterValue): string {
  if (typeof value === "string") return `the text ${JSON.stringify(value)}`;
  if (value instanceof LosslessNumber) return `the number ${value.toString()}`;
  return String(value);
}
