import type { Schema } from "../../api/client";
import type { Range } from "../../api/usage";
import { points, windows, type Former, type Granularity } from "../../charts/points";
import { sum } from "../../values/decimal";
import { day, nextDay, startOfDay } from "../../values/instants";

const hour = 3_600_000;

/** Returns the day `months` months before a day. If that month is too short, it returns the month's last day. */
function monthsBefore(of: string, months: number): string {
  const [year, month, date] = of.split("-").map(Number) as [number, number, number];
  const last = new Date(Date.UTC(year, month - months, 0)).getUTCDate();
  return new Date(Date.UTC(year, month - 1 - months, Math.min(date, last))).toISOString().slice(0, 10);
}

/** Returns the range before a chart: one month if the chart shows a calendar month, otherwise as many windows. */
export function formerRange(starts: string[], by: Granularity, ofMonth: boolean, timezone: string): Required<Range> {
  const end = starts[0]!;
  const first = day(end, timezone);
  if (ofMonth) return { start: startOfDay(monthsBefore(first, 1), timezone), end };
  if (by === "hour") return { start: new Date(Date.parse(end) - starts.length * hour).toISOString(), end };
  if (by === "month") return { start: startOfDay(monthsBefore(first, starts.length), timezone), end };
  return { start: startOfDay(nextDay(first, -starts.length * (by === "week" ? 7 : 1)), timezone), end };
}

/** Returns the previous range's usage by window, summed over all groups. null: that range has no such window. */
export function formerLine(of: Schema<"UsageResult">, by: Granularity, length: number, timezone: string, name: string): Former {
  const { starts, series } = points(of.groups, windows(of.period.start, of.period.end, by, timezone, new Date(of.period.end)));
  const values = Array.from({ length }, (_, index) => (index < starts.length ? sum(series.map(({ values }) => values[index]!)) : null));
  return { name, values };
}
