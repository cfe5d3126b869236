import type { Schema } from "../api/client";
import { sum } from "../values/decimal";
import { groupText } from "../values/groups";
import { day, nextDay, startOfDay } from "../values/instants";

/** A line of a chart: a value for each of its points, as the API has written it. */
export interface Series {
  name: string;
  values: string[];
}

/** The line of the time before, beside which the others stand; null where it has nothing at that place. */
export interface Former {
  name: string;
  values: (string | null)[];
}

/** What a chart draws: when each of its windows begins, and its lines. */
export interface Points {
  starts: string[];
  series: Series[];
  former?: Former | undefined;
  /** Values at which a line is drawn from the first window to the last. */
  thresholds?: string[];
}

export type Granularity = Schema<"UsageResult">["granularity"];

const mostSeries = 6;
const hour = 3_600_000;

/** When the windows of a range begin, up to now: those of a timezone, where they are not hours. */
export function windows(start: string, end: string, by: Granularity, timezone: string, now: Date): string[] {
  const [first, last] = [Date.parse(start), Math.min(Date.parse(end), now.getTime())];
  const found: string[] = [];
  if (by === "hour") {
    for (let at = Math.ceil(first / hour) * hour; at < last; at += hour) found.push(new Date(at).toISOString());
    return found;
  }
  for (let of = day(start, timezone); ; of = nextDay(of)) {
    const at = startOfDay(of, timezone);
    if (Date.parse(at) >= last) return found;
    if (Date.parse(at) >= first && begins(of, by)) found.push(at);
  }
}

/** Whether a window begins with a day: weeks do with Monday, as they do in the API. */
function begins(of: string, by: Granularity): boolean {
  if (by === "week") return new Date(of).getUTCDay() === 1;
  return by === "day" || of.endsWith("-01");
}

/** When a window that begins at an instant ends, unless its range ends before. */
export function windowEnd(start: string, by: Granularity, timezone: string): string {
  if (by === "hour") return new Date(Date.parse(start) + hour).toISOString();
  let next = nextDay(day(start, timezone));
  while (!begins(next, by)) next = nextDay(next);
  return startOfDay(next, timezone);
}

/** The usage of a group in each window that has some, and its total, which orders the lines of a chart. */
export interface Line {
  name: string;
  total: string;
  windows: { start: string; value: string }[];
}

/** The usage of each window, with a line for each group. Late usage belongs to its window. */
export function points(groups: Schema<"UsageGroup">[], starts: string[]): Points {
  return drawn(
    groups.map((group) => ({
      name: groupText(group.group_key),
      total: group.subtotal,
      windows: group.windows.map((window) => ({ start: window.window_start, value: sum([window.value, window.late_value]) })),
    })),
    starts,
  );
}

/** Draws each line in each window, also those without usage. Of more than six lines, the five largest stay and the others are added up. */
export function drawn(of: Line[], starts: string[]): Points {
  // The API writes an instant as it likes; the same instant is the same window.
  const at = (instant: string) => new Date(instant).toISOString();
  const all = [...new Set([...starts, ...of.flatMap(({ windows }) => windows.map(({ start }) => at(start)))])].sort();
  const place = new Map(all.map((start, index) => [start, index]));
  const lines = of.map(({ name, total, windows }) => {
    const values = all.map(() => "0");
    for (const { start, value } of windows) values[place.get(at(start))!] = value;
    return { name, values, size: Math.abs(Number(total)) };
  });
  lines.sort((a, b) => b.size - a.size);
  const shown = lines.length > mostSeries ? lines.slice(0, mostSeries - 1) : lines;
  const others = lines.slice(shown.length);
  const series = shown.map(({ name, values }) => ({ name, values }));
  if (others.length > 0) series.push({ name: `${others.length} others`, values: all.map((_, index) => sum(others.map(({ values }) => values[index]!))) });
  return { starts: all, series };
}
