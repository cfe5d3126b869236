import type { Schema } from "../api/client";
import { sum } from "../values/decimal";
import { groupText } from "../values/groups";
import { day, nextDay, startOfDay } from "../values/instants";

/** A line of a chart, with a value for each window. The values are decimals in the API's notation. */
export interface Series {
  name: string;
  values: string[];
}

/** The line of the previous time range, for comparison. null: that range has no value for the window. */
export interface Former {
  name: string;
  values: (string | null)[];
}

/** The content of a chart: the start of each window, and the lines. */
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

/** Returns the starts of a range's windows, up to now. Days, weeks and months are those of the timezone. */
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

/** Reports whether a window begins on a day. Weeks begin on Monday, as in the API. */
function begins(of: string, by: Granularity): boolean {
  if (by === "week") return new Date(of).getUTCDay() === 1;
  return by === "day" || of.endsWith("-01");
}

/** Returns the end of the window that begins at an instant. The range of the chart may end earlier. */
export function windowEnd(start: string, by: Granularity, timezone: string): string {
  if (by === "hour") return new Date(Date.parse(start) + hour).toISOString();
  let next = nextDay(day(start, timezone));
  while (!begins(next, by)) next = nextDay(next);
  return startOfDay(next, timezone);
}

/** The usage of a group in each window with usage. The totals set the order of the lines in a chart. */
export interface Line {
  name: string;
  total: string;
  windows: { start: string; value: string }[];
}

/** Returns the usage of each window, with a line for each group. Late usage is part of its window. */
export function points(groups: Schema<"UsageGroup">[], starts: string[]): Points {
  return pointsOfLines(
    groups.map((group) => ({
      name: groupText(group.group_key),
      total: group.subtotal,
      windows: group.windows.map((window) => ({ start: window.window_start, value: sum([window.value, window.late_value]) })),
    })),
    starts,
  );
}

/**
 * Returns each line with a value in each window, which is 0 in a window without usage. If there are more than six
 * lines, the five largest stay and the others are combined into one line.
 */
export function pointsOfLines(of: Line[], starts: string[]): Points {
  // The API can write the same instant in several notations, so instants are normalized before they are compared.
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
