import type { Alert, AlertDefinition } from "../../api/alerts";
import { grouped } from "../../values/decimal";
import { groupText } from "../../values/groups";

export const types: Record<Alert["type"], string> = {
  usage: "Usage of a meter in a billing period",
  spend: "Estimated charge of a billing period",
  quota: "Share of a quota that is used or reserved",
  silence: "Time without an event",
};

/** Returns the condition of an alert, such as "usage of tokens reaches 1,000". */
export function condition({ type, meter, group, thresholds = [], currency, minutes }: AlertDefinition): string {
  if (type === "silence") return `no event for ${minutes} minutes`;
  const numbers = thresholds.map((threshold) => grouped(threshold)).join(" or ");
  if (type === "spend") return `charge of ${meter ?? "all meters"} reaches ${numbers} ${currency ?? ""}`.trim();
  const subject = `${meter ?? "all meters"}${group ? ` (${groupText(group)})` : ""}`;
  return type === "quota" ? `quotas of ${subject} reach ${numbers} %` : `usage of ${subject} reaches ${numbers}`;
}

/** Returns the customers of an alert as text. */
export function scopeText({ customer, plan }: Pick<AlertDefinition, "customer" | "plan">): string {
  if (customer) return customer;
  return plan ? `customers of ${plan}` : "all customers";
}
