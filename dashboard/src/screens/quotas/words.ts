import type { Quota } from "../../api/quotas";
import { groupText } from "../../values/groups";

/** The periods of quotas, as texts after a limit. */
export const periods: Record<Quota["period"], string> = {
  billing: "each billing period",
  month: "each month",
  day: "each day",
  hour: "each hour",
  lifetime: "in total",
};

export const modes: Record<Quota["mode"], string> = {
  hard: "hard: usage beyond the limit is not allowed",
  soft: "soft: usage beyond the limit is allowed and marked as exceeded",
};

/** Returns the name of a quota among the quotas of its customer or plan. */
export const quotaName = ({ meter, group, period }: Pick<Quota, "meter" | "group" | "period">) => `the quota of ${meter}${group ? ` (${groupText(group)})` : ""} ${periods[period]}`;

/** Returns the options of a select from `words`, the label of each value. */
export const optionsOf = (words: Record<string, string>) => Object.entries(words).map(([value, label]) => ({ value, label }));
