import { queryOptions } from "@tanstack/react-query";
import { answer, api } from "./client";

/** What the daily audit of usage has found. */
export const discrepancies = queryOptions({
  queryKey: ["discrepancies"],
  queryFn: ({ signal }) => answer(api.GET("/v1/billing/discrepancies", { signal })),
});
