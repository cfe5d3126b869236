import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answer, api } from "./client";

/** Queries a page of the unrated usage, which will not be billed. */
export const unrated = (page: string | undefined) =>
  queryOptions({
    queryKey: ["unrated", { page }],
    queryFn: ({ signal }) => answer(api.GET("/v1/billing/unrated", { params: { query: { page_size: 25, ...(page && { page_token: page }) } }, signal })),
    placeholderData: keepPreviousData,
  });

/** The totals of the unrated usage, by reason and currency. */
export const unratedTotals = queryOptions({
  queryKey: ["unrated", "totals"],
  queryFn: async ({ signal }) => (await answer(api.GET("/v1/billing/unrated/totals", { signal }))).data,
  staleTime: 60_000,
});
