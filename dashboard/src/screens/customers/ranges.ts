import { day, isDay, nextDay, startOfDay } from "../../values/instants";

/** What of the address says from when to when usage is shown. */
export interface Asked {
  /** A number of days up to today, or "days": those from "from" to "to". Else the billing period that runs. */
  range?: string | undefined;
  from?: string | undefined;
  to?: string | undefined;
}

export const ranges = [
  ["7", "Last 7 days"],
  ["30", "Last 30 days"],
  ["90", "Last 90 days"],
  ["365", "Last 365 days"],
  ["days", "Custom range"],
] as const;

/** The first and the last of the days of one's choice; where none is chosen yet, the last thirty. */
export function chosenDays({ from, to }: Asked, timezone: string, now: Date): { from: string; to: string } {
  const last = isDay(to) ? to : day(now, timezone);
  return { from: isDay(from) && from <= last ? from : nextDay(last, -29), to: last };
}

/** The instants of a range, for the API; none for the billing period that runs, which it knows. */
export function instantsOf(asked: Asked, timezone: string, now: Date): { start?: string; end?: string } {
  const today = day(now, timezone);
  const whole = (from: string, to: string) => ({ start: startOfDay(from, timezone), end: startOfDay(nextDay(to), timezone) });
  if (asked.range === "days") {
    const { from, to } = chosenDays(asked, timezone, now);
    return whole(from, to);
  }
  const days = ranges.find(([value]) => value === asked.range);
  return days ? whole(nextDay(today, 1 - Number(days[0])), today) : {};
}
