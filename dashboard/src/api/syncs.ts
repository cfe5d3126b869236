import { queryOptions } from "@tanstack/react-query";
import { answer, api, type Schema } from "./client";

export type SyncRun = Schema<"SyncRun">;

export const over = ({ status }: SyncRun) => status === "succeeded" || status === "failed";

/** A sync, read again and again until it is over. */
export const sync = (id: string) =>
  queryOptions({
    queryKey: ["sync", id],
    queryFn: ({ signal }) => answer(api.GET("/v1/billing/syncs/{id}", { params: { path: { id } }, signal })),
    refetchInterval: ({ state }) => (state.data && over(state.data) ? false : 1_500),
  });

/** Asks for a sync of a customer. The answer may come before it is over. */
export const requestSync = (customer: string) => answer(api.POST("/v1/billing/sync", { body: { customer_external_id: customer } }));
