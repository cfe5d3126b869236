import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, exactAnswer, type Schema } from "./client";

export const uncountedCodes = ["value_missing", "value_invalid"] as const;

/** Queries a page of a meter's uncounted events of the last 30 days, for one rule or all. */
export const uncountedEvents = (meter: string, rule: string | undefined, page: string | undefined) =>
  queryOptions({
    queryKey: ["uncounted events", meter, { rule, page }],
    queryFn: ({ signal }) => {
      const known = uncountedCodes.find((code) => code === rule);
      const query = { page_size: 25, ...(known && { rule: known }), ...(page && { page_token: page }) };
      return exactAnswer<Schema<"ListUncountedEvent">>(api.GET("/v1/meters/{slug}/uncounted-events", { params: { path: { slug: meter }, query }, parseAs: "text", signal }));
    },
    placeholderData: keepPreviousData,
  });
