import { queryOptions } from "@tanstack/react-query";
import { breakdownRows } from "../../api/breakdown";
import { answer, api } from "../../api/client";
import type { Priced } from "../../api/prices";
import { excess } from "../../values/decimal";
import { day, nextDay, startOfDay } from "../../values/instants";

export interface CustomerUsage {
  customer: string;
  quantity: string;
}

export interface LastMonth {
  customers: CustomerUsage[];
  /** Whether customers with less usage are excluded. */
  more: boolean;
}

export const mostCustomers = 100;

/** Queries last month's usage of the customers that a price can charge: those of a plan, one customer, or all. */
export const lastMonth = ({ meter, plan, customer }: Priced, timezone: string) =>
  queryOptions({
    queryKey: ["last-month", meter, plan, customer, timezone],
    async queryFn({ signal }): Promise<LastMonth> {
      const range = monthBefore(new Date(), timezone);
      if (customer !== undefined) {
        const { total } = await answer(api.GET("/v1/usage/total", { params: { query: { customer, meter, ...range } }, signal }));
        return { customers: withUsage([{ customer, quantity: total }]), more: false };
      }
      const by = plan === undefined ? ["customer"] : ["customer", "plan"];
      const rows = (await breakdownRows({ meter, by, limit: mostCustomers, ...range }, signal)) ?? [];
      const listed = rows.filter((row) => !row.other && (plan === undefined || row.plan === plan));
      return { customers: withUsage(listed.map(({ customer = "", value }) => ({ customer, quantity: value }))), more: rows.some(({ other }) => other) };
    },
    staleTime: 600_000,
  });

/** Returns the customers with usage above 0. */
const withUsage = (of: CustomerUsage[]) => of.filter(({ quantity }) => excess(quantity, "0") !== "0");

/** Returns the range of the calendar month before the month of an instant. */
export function monthBefore(now: Date, timezone: string): { start: string; end: string } {
  const first = `${day(now, timezone).slice(0, 8)}01`;
  const before = `${nextDay(first, -1).slice(0, 8)}01`;
  return { start: startOfDay(before, timezone), end: startOfDay(first, timezone) };
}
