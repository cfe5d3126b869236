import { day, nextDay, startOfDay } from "../../values/instants";

/** What of the address says from when to when usage is shown. */
export interface Asked {
  /** A number of days up to today, or "days": those from "from" to "to". Else the billing period that runs. */
  range?: string | undefined;
  from?: string | undefined;
  to?: string | undefined;
}

export const ranges = [
  ["", "This billing period"],
  ["7", "Last 7 days"],
  ["30", "Last 30 days"],
  ["90", "Last 90 days"],
  ["365", "Last 365 days"],
  ["days", "Days of your choice"],
] as const;

const isDay = (text = "") => /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(Date.parse(text));

/** The instants of a range, for the API; none for the billing period that runs, which it knows. */
export function instantsOf({ range, from, to }: Asked, timezone: string, now: Date): { start?: string; end?: string } {
  const today = day(now, timezone);
  const days = ranges.find(([value]) => value !== "" && value !== "days" && value === range);
  if (days) return { start: startOfDay(nextDay(today, 1 - Number(days[0])), timezone), end: startOfDay(nextDay(today), timezone) };
  if (range !== "days" || !isDay(from) || !isDay(to) || from! > to!) return {};
  return { start: startOfDay(from!, timezone), end: startOfDay(nextDay(to!), timezone) };
}
