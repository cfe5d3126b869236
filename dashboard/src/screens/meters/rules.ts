/** Whether a meter counts an event, and why not, in words. */
export const rules: Record<string, string> = {
  counted: "Counted",
  filtered_out: "Excluded by a filter",
  value_missing: "Missing or null",
  value_invalid: "Not a number below 10^18",
};
