import { queryOptions } from "@tanstack/react-query";
import { answer, api } from "../../api/client";
import type { Session } from "../../api/session";
import type { SyncRun } from "../../api/syncs";
import { newestOfEach, urgent, type Need } from "./needs";

/** How many customers or syncs are asked about one by one. */
const askedAbout = 10;
const mostMeters = 1_000;

/** Of the customers with a failed sync, the newest of each, unless a later sync has done its work. */
async function stillFailed(syncs: SyncRun[], signal: AbortSignal): Promise<SyncRun[]> {
  const newest = await Promise.all(
    newestOfEach(syncs)
      .slice(0, askedAbout)
      .map(({ external_id: customer }) => answer(api.GET("/v1/billing/syncs", { params: { query: { customer, page_size: 1 } }, signal }))),
  );
  return newest.flatMap(({ data }) => data).filter(({ status }) => status === "failed");
}

/** The syncs that are under way as each says of itself: why it waits is not in the list. */
const asTheySay = (syncs: SyncRun[], signal: AbortSignal) =>
  Promise.all(syncs.slice(0, askedAbout).map(({ id }) => answer(api.GET("/v1/billing/syncs/{id}", { params: { path: { id } }, signal }))));

/** What needs somebody, as far as who asks may see it, read again every half minute. */
export const needed = ({ permissions }: Session) =>
  queryOptions({
    queryKey: ["needs"],
    async queryFn({ signal }): Promise<Need[]> {
      const query = { page_size: 20 };
      const [holds, syncs, running, lines, audits, webhooks, meters] = await Promise.all([
        answer(api.GET("/v1/billing/holds", { params: { query: { ...query, state: "disagrees" } }, signal })),
        answer(api.GET("/v1/billing/syncs", { params: { query: { ...query, status: "failed" } }, signal })),
        answer(api.GET("/v1/billing/syncs", { params: { query: { ...query, status: "running" } }, signal })),
        answer(api.GET("/v1/billing/reconciliation", { params: { query: { ...query, state: "disputed" } }, signal })),
        answer(api.GET("/v1/billing/discrepancies", { params: { query }, signal })),
        permissions.includes("webhooks:read") ? answer(api.GET("/v1/webhooks", { signal })) : null,
        permissions.includes("meters:read") ? answer(api.GET("/v1/meters", { params: { query: { page_size: mostMeters } }, signal })) : null,
      ]);
      return urgent({
        holds: holds.data,
        syncs: await stillFailed(syncs.data, signal),
        running: await asTheySay(running.data, signal),
        lines: lines.data,
        audits: audits.data,
        webhooks: webhooks?.data ?? [],
        meters: meters?.data ?? [],
      });
    },
    refetchInterval: 30_000,
    enabled: permissions.includes("billing:read"),
  });
