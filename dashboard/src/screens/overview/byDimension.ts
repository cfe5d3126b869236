import { queryOptions } from "@tanstack/react-query";
import { breakdownRows, type BreakdownRow } from "../../api/breakdown";
import { answer, api } from "../../api/client";
import type { Range } from "../../api/usage";
import { drawn, type Line, type Points } from "../../charts/points";
import { difference, sum } from "../../values/decimal";
import { groupText } from "../../values/groups";

/** Days of the overview's charts, today included. */
export const days = 30;

const mostCustomers = 5;

/** Daily usage by a dimension. */
export interface Daily {
  lines: Line[];
  /** Usage of all customers, if the lines lack some of it. */
  all?: Line;
}

/** The daily usage of a meter by a dimension: of the five largest customers, or of each plan or property value. Null if there are too many values. */
export const usageBy = (meter: string, dimension: string, range: Required<Range>) =>
  queryOptions({
    queryKey: ["breakdown", "daily", meter, dimension, range],
    queryFn: ({ signal }) => (dimension === "customer" ? ofCustomers(meter, range, signal) : ofValues(meter, dimension, range, signal)),
    staleTime: 60_000,
  });

/** Reads all customers together last, so that new usage makes no customer larger than all of them. */
async function ofCustomers(meter: string, range: Required<Range>, signal: AbortSignal): Promise<Daily | null> {
  const largest = await breakdownRows({ meter, by: ["customer"], limit: mostCustomers, ...range }, signal);
  if (!largest) return null;
  const lines = await Promise.all(largest.filter(({ other }) => !other).map(({ customer = "", value }) => ofCustomer(meter, customer, value, range, signal)));
  if (!largest.some(({ other }) => other)) return { lines };
  const days = await breakdownRows({ meter, granularity: "day", ...range }, signal);
  return days && { lines, all: lineOf("all others", days) };
}

async function ofCustomer(meter: string, customer: string, total: string, range: Required<Range>, signal: AbortSignal): Promise<Line> {
  const query = { meter, customer, granularity: "day" as const, group_by: [""], page_size: 10_000, ...range };
  const { groups } = await answer(api.GET("/v1/usage", { params: { query }, signal }));
  const windows = groups.flatMap((group) => group.windows.map(({ window_start, value, late_value }) => ({ start: window_start, value: sum([value, late_value]) })));
  return { name: customer, total, windows };
}

async function ofValues(meter: string, dimension: string, range: Required<Range>, signal: AbortSignal): Promise<Daily | null> {
  const rows = await breakdownRows({ meter, by: [dimension], granularity: "day", ...range }, signal);
  if (!rows) return null;
  const byName = new Map<string, BreakdownRow[]>();
  for (const row of rows) {
    const name = row.group_key ? groupText(row.group_key) : row.plan || "no plan";
    byName.set(name, [...(byName.get(name) ?? []), row]);
  }
  return { lines: [...byName].map(([name, rows]) => lineOf(name, rows)) };
}

const lineOf = (name: string, rows: BreakdownRow[]): Line => ({
  name,
  total: sum(rows.map(({ value }) => value)),
  windows: rows.map(({ window_start: start = "", value }) => ({ start, value })),
});

/** Draws the lines, and the usage that they lack as the last line. */
export function daily({ lines, all }: Daily, starts: string[]): Points {
  if (!all) return drawn(lines, starts);
  const whole = drawn([all], starts);
  const points = drawn(lines, whole.starts);
  const lacked = whole.series[0]!.values.map((value, index) => difference(value, sum(points.series.map(({ values }) => values[index]!))));
  return { ...points, series: [...points.series, { name: all.name, values: lacked }] };
}
