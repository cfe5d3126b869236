import type { uncountedCodes } from "../../api/uncountedEvents";

/** The rules that uncounted events break, in words. */
export const uncountedRules: Record<(typeof uncountedCodes)[number], string> = {
  value_missing: "Missing or null",
  value_invalid: "Not a number with an absolute value below 10^18",
};

/** The verdicts of a preview, in words. */
export const verdicts: Record<string, string> = { counted: "Counted", filtered_out: "Excluded by a filter", ...uncountedRules };
