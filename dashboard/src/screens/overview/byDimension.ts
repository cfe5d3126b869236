import { queryOptions } from "@tanstack/react-query";
import { breakdownRows, type BreakdownQuery, type BreakdownRow } from "../../api/breakdown";
import { answer, api } from "../../api/client";
import type { Range } from "../../api/usage";
import { pointsOfLines, type Line, type Points } from "../../charts/points";
import { difference, sum } from "../../values/decimal";
import { filterText, groupText, isOther } from "../../values/groups";
import type { Dimension } from "../usage/dimensions";

/** Days of the overview's charts, today included. */
export const days = 30;

const most = 5;

/** Daily usage by a dimension. */
export interface Daily {
  lines: Line[];
  /** The usage of all customers, if the lines do not contain all of it. */
  all?: Line;
}

/**
 * Returns the query of a meter's daily usage by a dimension: of the five largest customers or property values, or of
 * each plan. The result is null if there are too many plans.
 */
export const usageBy = (meter: string, { sent, property }: Dimension, range: Required<Range>) =>
  queryOptions({
    queryKey: ["breakdown", "daily", meter, sent, range],
    queryFn: ({ signal }) => {
      if (property !== undefined) return dailyOfProperty({ meter, ...range }, sent, property, signal);
      return sent === "customer" ? dailyOfCustomers({ meter, ...range }, signal) : dailyOfPlans({ meter, ...range }, signal);
    },
    staleTime: 60_000,
  });

type InRange = Required<Pick<BreakdownQuery, "meter" | "start" | "end">>;

/** Reads the daily usage of the five largest customers. */
async function dailyOfCustomers(query: InRange, signal: AbortSignal): Promise<Daily | null> {
  const rows = await breakdownRows({ ...query, by: ["customer"], limit: most }, signal);
  const largest = rows?.filter(({ other }) => !other) ?? [];
  const lines = await Promise.all(largest.map(({ customer = "", value }) => lineOfCustomer(query, customer, value, signal)));
  return largest.length === rows?.length ? { lines } : withOthers(query, lines, signal);
}

/** Reads the daily usage of the five largest values of a property. */
async function dailyOfProperty(query: InRange, sent: string, property: string, signal: AbortSignal): Promise<Daily | null> {
  const rows = await breakdownRows({ ...query, by: [sent], limit: most }, signal);
  const values = rows?.flatMap(({ other, group_key }) => (other || !group_key || isOther(group_key) ? [] : [filterText(group_key[property])])) ?? [];
  const largest = values.length > 0 ? await breakdownRows({ ...query, by: [sent], granularity: "day", filters: { [property]: values } }, signal) : [];
  const lines = linesOf(largest ?? []);
  return values.length === rows?.length ? { lines } : withOthers(query, lines, signal);
}

/** Reads the daily usage of each plan. */
async function dailyOfPlans(query: InRange, signal: AbortSignal): Promise<Daily | null> {
  const rows = await breakdownRows({ ...query, by: ["plan"], granularity: "day" }, signal);
  return rows && { lines: linesOf(rows) };
}

/** Reads the usage of all customers last, so that new usage makes no line larger than this total. */
async function withOthers(query: InRange, lines: Line[], signal: AbortSignal): Promise<Daily | null> {
  const days = await breakdownRows({ ...query, granularity: "day" }, signal);
  return days && { lines, all: lineOf("all others", days) };
}

/** Reads the daily usage of a customer, including late usage. */
async function lineOfCustomer(query: InRange, customer: string, total: string, signal: AbortSignal): Promise<Line> {
  const daily = { ...query, customer, granularity: "day" as const, group_by: [""], page_size: 100 };
  const { groups } = await answer(api.GET("/v1/usage", { params: { query: daily }, signal }));
  const windows = groups.flatMap((group) => group.windows.map(({ window_start, value, late_value }) => ({ start: window_start, value: sum([value, late_value]) })));
  return { name: customer, total, windows };
}

/** Returns a line for each plan or property value of some rows. */
function linesOf(rows: BreakdownRow[]): Line[] {
  const byName = new Map<string, BreakdownRow[]>();
  for (const row of rows) {
    const name = row.group_key ? groupText(row.group_key) : row.plan || "no plan";
    byName.set(name, [...(byName.get(name) ?? []), row]);
  }
  return [...byName].map(([name, rows]) => lineOf(name, rows));
}

/** Returns a line from rows: their windows, and their sum as the total. */
const lineOf = (name: string, rows: BreakdownRow[]): Line => ({
  name,
  total: sum(rows.map(({ value }) => value)),
  windows: rows.map(({ window_start: start = "", value }) => ({ start, value })),
});

/** Returns the lines, with the usage that they do not contain as the last line. */
export function daily({ lines, all }: Daily, starts: string[]): Points {
  if (!all) return pointsOfLines(lines, starts);
  const whole = pointsOfLines([all], starts);
  const points = pointsOfLines(lines, whole.starts);
  const lacked = whole.series[0]!.values.map((value, index) => difference(value, sum(points.series.map(({ values }) => values[index]!))));
  return { ...points, series: [...points.series, { name: all.name, values: lacked }] };
}
