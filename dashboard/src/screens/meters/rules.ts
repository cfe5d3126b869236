import type { Schema } from "../../api/client";

/** Why a meter could not count an event, in words. */
export const uncountedRules: Record<Schema<"UncountedEvent">["rule"], string> = {
  value_missing: "Missing or null",
  value_invalid: "Not a number below 10^18",
};

/** Whether a definition counts an event, and why not, in words. */
export const rules: Record<string, string> = { counted: "Counted", filtered_out: "Excluded by a filter", ...uncountedRules };
