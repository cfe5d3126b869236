import { queryOptions } from "@tanstack/react-query";
import { answer, api, type Schema } from "./client";

export type SyncRun = Schema<"SyncRun">;

/** Reports whether a sync has succeeded or failed. */
export const isOver = ({ status }: Pick<SyncRun, "status">) => status === "succeeded" || status === "failed";

/** Queries a sync, every 1.5 seconds until it is over. */
export const sync = (id: string) =>
  queryOptions({
    queryKey: ["sync", id],
    queryFn: ({ signal }) => answer(api.GET("/v1/billing/syncs/{id}", { params: { path: { id } }, signal })),
    refetchInterval: ({ state }) => (state.data && isOver(state.data) ? false : 1_500),
  });

/** Queries the id of a customer's open sync, every half second until there is one. */
export const openSync = (customer: string) =>
  queryOptions({
    queryKey: ["syncs", "open", customer],
    async queryFn({ signal }) {
      const [newest] = (await answer(api.GET("/v1/billing/syncs", { params: { query: { customer, page_size: 1 } }, signal }))).data;
      return newest && !isOver(newest) ? newest.id : null;
    },
    refetchInterval: ({ state }) => (state.data ? false : 500),
    gcTime: 0,
  });

/** Requests a sync of a customer. The answer may arrive before the sync is over. */
export const requestSync = (customer: string) => answer(api.POST("/v1/billing/sync", { body: { customer_external_id: customer } }));
