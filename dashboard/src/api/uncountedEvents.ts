import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answer, api } from "./client";

/** Whether a meter has uncounted events of the last 30 days, which is the API's default range. */
export const hasUncounted = (meter: string) =>
  queryOptions({
    queryKey: ["uncounted events", meter, "any"],
    queryFn: async ({ signal }) => (await answer(api.GET("/v1/meters/{slug}/uncounted-events", { params: { path: { slug: meter }, query: { page_size: 1 } }, signal }))).data.length > 0,
  });

export const rules = ["value_missing", "value_invalid"] as const;

/** A page of a meter's uncounted events of the last 30 days, by one rule or all. */
export const uncountedEvents = (meter: string, rule: string | undefined, page: string | undefined) =>
  queryOptions({
    queryKey: ["uncounted events", meter, { rule, page }],
    queryFn: ({ signal }) => {
      const known = rules.find((one) => one === rule);
      const query = { page_size: 25, ...(known && { rule: known }), ...(page && { page_token: page }) };
      return answer(api.GET("/v1/meters/{slug}/uncounted-events", { params: { path: { slug: meter }, query }, signal }));
    },
    placeholderData: keepPreviousData,
  });
