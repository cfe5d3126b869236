import { day, isDay, nextDay, startOfDay } from "../../values/instants";

/** The search parameters of the address that select the range of the usage. */
export interface Asked {
  /** One of `ranges`: a number of days up to today, or "days" for `from` to `to`. Otherwise, the API's default. */
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

/** Returns the days of a custom range: by default, 30 days up to `to` or today. A `from` after `to` is ignored. */
export function chosenDays({ from, to }: Asked, timezone: string, now: Date): { from: string; to: string } {
  const last = isDay(to) ? to : day(now, timezone);
  return { from: isDay(from) && from <= last ? from : nextDay(last, -29), to: last };
}

/** Returns the start and end of a range for the API, or neither for the API's default: the current month. */
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
