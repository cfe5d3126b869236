import { queryOptions } from "@tanstack/react-query";
import { answer, api, exactAnswer, type Schema } from "./client";

export type Alert = Schema<"Alert">;
export type AlertDefinition = Schema<"AlertDefinition">;

/** Queries a page of the alerts. */
export const alerts = (page: string | undefined) =>
  queryOptions({
    queryKey: ["alerts", { page }],
    queryFn: ({ signal }) => exactAnswer<Schema<"ListAlert">>(api.GET("/v1/alerts", { params: { query: { page_size: 25, ...(page && { page_token: page }) } }, parseAs: "text", signal })),
  });

/** Queries an alert by its id. */
export const alert = (id: string) =>
  queryOptions({
    queryKey: ["alert", id],
    queryFn: ({ signal }) => exactAnswer<Alert>(api.GET("/v1/alerts/{id}", { params: { path: { id } }, parseAs: "text", signal })),
  });

/** Queries a page of the firings of an alert, newest first. */
export const firings = (id: string, page: string | undefined, size = 25) =>
  queryOptions({
    queryKey: ["firings", id, { page, size }],
    queryFn: ({ signal }) => answer(api.GET("/v1/alerts/{id}/firings", { params: { path: { id }, query: { page_size: size, ...(page && { page_token: page }) } }, signal })),
  });

/** Queries the days, out of the last 30, on which an alert would have fired. */
export const dryRun = (body: AlertDefinition) =>
  queryOptions({
    queryKey: ["dry-run", body],
    queryFn: ({ signal }) => answer(api.POST("/v1/alerts/dry-run", { body, signal })),
  });

/** Requests a new alert. */
export const createAlert = (body: AlertDefinition) => answer(api.POST("/v1/alerts", { body }));

/** Requests a change of an alert. Absent fields stay as they are. */
export const updateAlert = (id: string, body: Schema<"UpdateAlert">) => answer(api.PATCH("/v1/alerts/{id}", { params: { path: { id } }, body }));

/** Requests the deletion of an alert and its firings. */
export const deleteAlert = (id: string) => answer(api.DELETE("/v1/alerts/{id}", { params: { path: { id } } }));
