import { queryOptions } from "@tanstack/react-query";
import { answer, api, type Schema } from "./client";

const backfilling = ({ status }: Schema<"Meter">) => status === "backfilling";

/** A page of the meters; read again while one of them is being counted. */
export const meters = (page: string | undefined, archived: boolean) =>
  queryOptions({
    queryKey: ["meters", { page, archived }],
    queryFn: ({ signal }) => {
      const query = { page_size: 25, archived, ...(page && { page_token: page }) };
      return answer(api.GET("/v1/meters", { params: { query }, signal }));
    },
    refetchInterval: ({ state }) => (state.data?.data.some(backfilling) ? 2_000 : false),
  });

/** A meter; read again while it is being counted. */
export const meter = (slug: string) =>
  queryOptions({
    queryKey: ["meter", slug],
    queryFn: ({ signal }) => answer(api.GET("/v1/meters/{slug}", { params: { path: { slug } }, signal })),
    refetchInterval: ({ state }) => (state.data && backfilling(state.data) ? 2_000 : false),
  });
