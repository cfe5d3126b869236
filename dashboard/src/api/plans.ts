import { queryOptions } from "@tanstack/react-query";
import { answer, api, exactAnswer, type Schema } from "./client";

/** Queries a page of the plans. */
export const plans = (page: string | undefined, archived: boolean) =>
  queryOptions({
    queryKey: ["plans", { page, archived }],
    queryFn: ({ signal }) => {
      const query = { page_size: 25, archived, ...(page && { page_token: page }) };
      return answer(api.GET("/v1/plans", { params: { query }, signal }));
    },
  });

/** The plans that are not archived: a tenant has at most 1,000. */
export const allPlans = queryOptions({
  queryKey: ["plans", "all"],
  queryFn: async ({ signal }) => (await answer(api.GET("/v1/plans", { params: { query: { page_size: 1_000 } }, signal }))).data,
});

/** Queries a plan by its slug. */
export const plan = (slug: string) =>
  queryOptions({
    queryKey: ["plans", slug],
    queryFn: ({ signal }) => exactAnswer<Schema<"Plan">>(api.GET("/v1/plans/{slug}", { params: { path: { slug } }, parseAs: "text", signal })),
  });
