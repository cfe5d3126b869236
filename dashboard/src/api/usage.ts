import { queryOptions } from "@tanstack/react-query";
import type { Granularity } from "../charts/points";
import { api, exactAnswer, type Schema } from "./client";

export interface Range {
  start?: string;
  end?: string;
}

const mostWindows = 50_000;

/** Queries a meter's usage by groups and windows, as many as a screen can show. has_more: there are more windows. */
export const usage = (customer: string, meter: string, granularity: Granularity, range: Range) =>
  queryOptions({
    queryKey: ["usage", customer, meter, granularity, range],
    async queryFn({ signal }) {
      const query = { customer, meter, granularity, page_size: 10_000, ...range };
      const read = (token?: string) =>
        exactAnswer<Schema<"UsageResult">>(api.GET("/v1/usage", { params: { query: { ...query, ...(token && { page_token: token }) } }, parseAs: "text", signal }));
      let whole = await read();
      while (whole.next_page_token && windowCount(whole) < mostWindows) {
        whole = joined(whole, await read(whole.next_page_token));
      }
      return whole;
    },
  });

/** Returns the number of windows of all groups. */
const windowCount = (usage: Schema<"UsageResult">) => usage.groups.reduce((sum, group) => sum + group.windows.length, 0);

/** Joins two pages. A group may continue on the next page. */
function joined(first: Schema<"UsageResult">, next: Schema<"UsageResult">): Schema<"UsageResult"> {
  const groups = new Map(first.groups.map((group) => [JSON.stringify(group.group_key), group]));
  for (const group of next.groups) {
    const key = JSON.stringify(group.group_key);
    groups.set(key, { ...group, windows: [...(groups.get(key)?.windows ?? []), ...group.windows] });
  }
  return { ...next, groups: [...groups.values()] };
}
