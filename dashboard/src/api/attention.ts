import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { answer, api, type Schema } from "./client";
import type { Session } from "./session";

export type AttentionItem = Schema<"AttentionItem">;
export type AttentionCause = Schema<"AttentionCause">;

const every = 30_000;
const path = "/v1/billing/attention";

/** Queries the number of items that need attention, every half minute. */
export const attentionCount = ({ permissions }: Session) =>
  queryOptions({
    queryKey: ["attention", "count"],
    queryFn: async ({ signal }) => (await answer(api.GET(path, { params: { query: { page_size: 1 } }, signal }))).total_items,
    refetchInterval: every,
    enabled: permissions.includes("billing:read"),
  });

/** The items that need attention, page by page. */
export const attention = infiniteQueryOptions({
  queryKey: ["attention", "list"],
  queryFn: ({ pageParam, signal }) => answer(api.GET(path, { params: { query: { page_size: 20, ...(pageParam && { page_token: pageParam }) } }, signal })),
  initialPageParam: "",
  getNextPageParam: ({ next_page_token }) => next_page_token ?? undefined,
  refetchInterval: every,
});

/** Requests a sync of each customer with a last sync that failed for this cause, of at most 10,000 customers. */
export const retryFailed = (cause: string) =>
  answer(api.POST("/v1/billing/attention/retry", { params: { header: { "Idempotency-Key": crypto.randomUUID() } }, body: { cause } }));
