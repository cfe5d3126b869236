import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answer, api, type Schema } from "./client";

export type Statement = Schema<"PeriodStatement">;

const newest = 36;

/** Queries a customer's newest billing periods, the running one first. */
export const periods = (customer: string) =>
  queryOptions({
    queryKey: ["period", customer],
    queryFn: ({ signal }) => answer(api.GET("/v1/billing/periods", { params: { query: { customer, page_size: newest } }, signal })),
  });

/** Queries the whole bill of a period, with a page of the reports that bill it. */
export const statement = (period: string, page?: string) =>
  queryOptions({
    queryKey: ["statement", period, page],
    queryFn: ({ signal }) =>
      answer(api.GET("/v1/billing/statements/{period}", { params: { path: { period }, query: { page_size: 20, ...(page && { page_token: page }) } }, signal })),
    placeholderData: keepPreviousData,
  });
