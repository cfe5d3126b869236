import type { Alert, AlertDefinition } from "../../api/alerts";
import { decimals, difference, isAmount, wrongWhole } from "../../values/decimal";
import { groupOf, type TypedGroup } from "../quotas/GroupFields";

export type Scope = "customer" | "plan" | "all";

/** The fields of an alert's form. */
export interface Typed {
  name: string;
  type: Alert["type"];
  scope: Scope;
  customer: string;
  plan: string;
  meter: string;
  group: TypedGroup;
  /** The thresholds, one per line. */
  thresholds: string;
  currency: string;
  minutes: string;
}

export const empty: Typed = { name: "", type: "usage", scope: "all", customer: "", plan: "", meter: "", group: undefined, thresholds: "", currency: "", minutes: "60" };

/** Returns the thresholds in a text with one per line. */
export const thresholdsOf = (text: string) => text.split("\n").map((line) => line.trim()).filter(Boolean);

/** Returns an error message if the API does not accept the thresholds. */
export function wrongThresholds(text: string, type: Alert["type"]): string | undefined {
  const lines = thresholdsOf(text);
  if (lines.length > 10) return "Must be at most 10 numbers";
  if (!lines.every(isAmount)) return "Must be numbers such as 1000.50, one per line, without thousands separators";
  if (type === "quota" && !lines.every((line) => decimals(line) <= 2 && !difference("1000", line).startsWith("-"))) return "Must be percentages of at most 1000 with at most 2 decimals";
  return undefined;
}

/** Returns the rule that the typed numbers of an alert break. */
export function wrongTyped({ type, thresholds, minutes }: Pick<Typed, "type" | "thresholds" | "minutes">): string | undefined {
  return type === "silence" ? wrongWhole(minutes) : wrongThresholds(thresholds, type);
}

/** Returns the request that creates a typed alert. */
export function definitionOf({ name, type, scope, customer, plan, meter, group, thresholds, currency, minutes }: Typed): AlertDefinition {
  const scoped = { customer: { customer }, plan: { plan }, all: { all: true } }[scope];
  if (type === "silence") return { name, type, ...scoped, minutes: Number(minutes) };
  return {
    name,
    type,
    ...scoped,
    ...(meter && { meter }),
    ...(type !== "spend" && group && { group: groupOf(group) }),
    thresholds: thresholdsOf(thresholds),
    ...(type === "spend" && currency && { currency }),
  };
}

/** Returns the request that would create a stored alert. */
export function storedDefinition({ name, type, customer, plan, all, meter, group, thresholds, currency, minutes }: Alert): AlertDefinition {
  return {
    ...{ name, type },
    ...(customer && { customer }),
    ...(plan && { plan }),
    ...(all && { all }),
    ...(meter && { meter }),
    ...(group && { group }),
    ...(type !== "silence" && { thresholds }),
    ...(currency && { currency }),
    ...(minutes && { minutes }),
  };
}
