import { queryOptions } from "@tanstack/react-query";
import { answer, api, type Schema } from "./client";

/** Queries a customer by Odometer's id. Unlike an external ID, this id needs no escaping in an address. */
export const customer = (id: string) =>
  queryOptions({
    queryKey: ["customer", id],
    queryFn: ({ signal }) => answer(api.GET("/v1/customers/by-id", { params: { query: { id } }, signal })),
  });

/** Returns the parameters that identify a customer in a request. The external ID may contain any character. */
export const customerParams = (external_id: string) => ({ path: { external_id: "by-external-id" }, query: { external_id } });

/** Queries a customer by its external ID. */
export const customerOf = (external_id: string) =>
  queryOptions({
    queryKey: ["customer", "external", external_id],
    queryFn: ({ signal }) => answer(api.GET("/v1/customers/by-external-id", { params: { query: { external_id } }, signal })),
  });

/** The name and the external ID of a customer, as the lists of billing contain them. */
export type Named = Pick<Schema<"SyncRun">, "customer_name" | "external_id">;

/** Returns the name of a customer, or the external ID if the name is empty. */
export const customerLabel = ({ customer_name: name, external_id: id }: Named) => name || id;
