import { queryOptions } from "@tanstack/react-query";
import { answer, api } from "./client";

/** Queries a page of the tenant's members. */
export const members = (page?: string) =>
  queryOptions({
    queryKey: ["members", { page }],
    queryFn: ({ signal }) => answer(api.GET("/v1/tenant/members", { params: { query: { page_size: 100, ...(page && { page_token: page }) } }, signal })),
    staleTime: 60_000,
  });
