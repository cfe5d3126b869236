import { queryOptions, useQuery } from "@tanstack/react-query";
import { answer, api, exactAnswer, type Schema } from "./client";
import { useSession } from "./session";

type Meter = Schema<"Meter">;

/** Reports whether the meter still counts earlier events. */
const isBackfilling = ({ status }: Meter) => status === "backfilling";

/** Queries a page of the meters, every two seconds while one of them is backfilling. */
export const meters = (page: string | undefined, archived: boolean) =>
  queryOptions({
    queryKey: ["meters", { page, archived }],
    queryFn: ({ signal }) => {
      const query = { page_size: 25, archived, ...(page && { page_token: page }) };
      return exactAnswer<Schema<"ListMeter">>(api.GET("/v1/meters", { params: { query }, parseAs: "text", signal }));
    },
    refetchInterval: ({ state }) => (state.data?.data.some(isBackfilling) ? 2_000 : false),
  });

/** All meters, including archived ones: a tenant has at most 1,000. */
export const allMeters = queryOptions({
  queryKey: ["meters", "all"],
  queryFn: async ({ signal }) => (await answer(api.GET("/v1/meters", { params: { query: { page_size: 1_000, archived: true } }, signal }))).data,
  staleTime: 60_000,
});

/** Returns the unit of a meter. "": the meter has no unit or cannot be read. undefined: the meter is being read. */
export function useUnit(slug: string): string | undefined {
  const { permissions } = useSession();
  const { data, isLoading } = useQuery({ ...allMeters, enabled: permissions.includes("meters:read") });
  return isLoading ? undefined : (data?.find((meter) => meter.slug === slug)?.unit ?? "");
}

/** Queries a meter, every two seconds while the meter still counts earlier events. */
export const meter = (slug: string) =>
  queryOptions({
    queryKey: ["meter", slug],
    queryFn: ({ signal }) => exactAnswer<Meter>(api.GET("/v1/meters/{slug}", { params: { path: { slug } }, parseAs: "text", signal })),
    refetchInterval: ({ state }) => (state.data && isBackfilling(state.data) ? 2_000 : false),
  });

/** Changes the fields of a meter that the body contains. */
export const updateMeter = (slug: string, body: Schema<"UpdateMeter">) => exactAnswer<Meter>(api.PATCH("/v1/meters/{slug}", { params: { path: { slug } }, body, parseAs: "text" }));

export type Definition = Required<Pick<Schema<"UpdateMeter">, "aggregation" | "value_property" | "filters" | "group_by">>;

/** Measures the latest events of a type by a definition, and saves nothing. */
export const previewMeter = (body: Definition & { event_type: string }) => exactAnswer<Schema<"MeterPreview">>(api.POST("/v1/meters/preview", { body, parseAs: "text" }));

/** Measures the latest events of a meter by a new definition and by the current one. */
export const previewMeterChange = (slug: string, body: Definition) => exactAnswer<Schema<"MeterPreview">>(api.POST("/v1/meters/{slug}/preview", { params: { path: { slug } }, body, parseAs: "text" }));
