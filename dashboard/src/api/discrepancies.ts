import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answer, api } from "./client";

/** Queries a page of the differences that the daily audit of usage has found. */
export const discrepancies = (page: string | undefined) =>
  queryOptions({
    queryKey: ["discrepancies", { page }],
    queryFn: ({ signal }) => answer(api.GET("/v1/billing/discrepancies", { params: { query: { page_size: 25, ...(page && { page_token: page }) } }, signal })),
    placeholderData: keepPreviousData,
  });
