import { queryOptions } from "@tanstack/react-query";
import { answer, api, type Schema } from "./client";

/** A customer by our id of it, which fits in an address whatever the tenant calls it. */
export const customer = (id: string) =>
  queryOptions({
    queryKey: ["customer", id],
    queryFn: ({ signal }) => answer(api.GET("/v1/customers/by-id", { params: { query: { id } }, signal })),
  });

/** Names a customer in the path of an operation, whatever the characters of the external ID. */
export const at = (external_id: string) => ({ path: { external_id: "by-external-id" }, query: { external_id } });

/** A customer by its external ID. */
export const customerOf = (external_id: string) =>
  queryOptions({
    queryKey: ["customer", "external", external_id],
    queryFn: ({ signal }) => answer(api.GET("/v1/customers/by-external-id", { params: { query: { external_id } }, signal })),
  });

/** Whose something is, as lists of billing say it. */
export type Named = Pick<Schema<"SyncRun">, "customer_name" | "external_id">;

/** What a customer is called: by name, or else by the id that the tenant has given. */
export const called = ({ customer_name: name, external_id: id }: Named) => name || id;
