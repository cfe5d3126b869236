import { queryOptions } from "@tanstack/react-query";
import type { AlertDefinition } from "../../api/alerts";
import { breakdownRows } from "../../api/breakdown";
import { answer, api } from "../../api/client";
import { windows, type Points } from "../../charts/points";
import { sum } from "../../values/decimal";
import { filterText } from "../../values/groups";
import { day, nextDay, startOfDay } from "../../values/instants";

const days = 30; // of the chart, today included
const mostCustomers = 100; // that are searched for a customer of a plan

/** The chart of an alert of usage: the usage that a customer had in each billing period until the end of each day. */
export interface PeriodTotals {
  customer: string;
  points: Points;
  end: string;
}

/** The chart of the last 30 days, of the alert's customer or else of its customer with the highest usage. Null if none has usage. */
export const periodTotals = (definition: AlertDefinition, timezone: string) =>
  queryOptions({
    queryKey: ["usage", "alert", definition, timezone],
    queryFn: async ({ signal }): Promise<PeriodTotals | null> => {
      const now = new Date();
      const first = startOfDay(nextDay(day(now, timezone), 1 - days), timezone);
      const end = startOfDay(nextDay(day(now, timezone)), timezone);
      const customer = definition.customer ?? (await largestCustomer(definition, { start: first, end }, signal));
      if (customer === undefined) return null;
      const starts = await periodStarts(customer, first, timezone, signal);
      const start = [...starts, first].sort()[0]!;
      const read = await answer(
        api.GET("/v1/usage", { params: { query: { customer, meter: definition.meter ?? "", granularity: "day", group_by: [""], page_size: 1_000, start, end, filter: filterOf(definition) } }, signal }),
      );
      const daily = new Map(read.groups.flatMap((group) => group.windows).map(({ window_start, value, late_value }) => [new Date(window_start).toISOString(), sum([value, late_value])]));
      const all = windows(start, end, "day", timezone, now);
      const totals = runningTotals(all, daily, new Set(starts));
      const thresholds = definition.thresholds ?? [];
      return { customer, end, points: { starts: all.slice(-days), series: [{ name: customer, values: totals.slice(-days) }], thresholds } };
    },
    gcTime: 0,
  });

/** Returns the sum of the usage of the days since the last period start, for each day. */
export function runningTotals(days: string[], daily: Map<string, string>, starts: Set<string>): string[] {
  let total = "0";
  return days.map((day) => (total = sum([starts.has(day) ? "0" : total, daily.get(day) ?? "0"])));
}

/** Returns the days on which the billing periods of a range start that ends now. */
async function periodStarts(customer: string, since: string, timezone: string, signal: AbortSignal): Promise<string[]> {
  const { data } = await answer(api.GET("/v1/billing/periods", { params: { query: { customer, page_size: 36 } }, signal }));
  return data.filter(({ end }) => Date.parse(end) > Date.parse(since)).map(({ start }) => startOfDay(day(start, timezone), timezone));
}

const filterOf = ({ group }: AlertDefinition) => Object.fromEntries(Object.entries(group ?? {}).map(([property, value]) => [`filter.${property}`, filterText(value)]));

async function largestCustomer({ meter = "", plan, group }: AlertDefinition, range: { start: string; end: string }, signal: AbortSignal): Promise<string | undefined> {
  const filters = Object.fromEntries(Object.entries(group ?? {}).map(([property, value]) => [property, [filterText(value)]]));
  const rows = await breakdownRows({ meter, ...range, by: plan ? ["customer", "plan"] : ["customer"], order: "value", limit: mostCustomers, filters }, signal);
  return rows?.find((row) => !row.other && (!plan || row.plan === plan))?.customer;
}
