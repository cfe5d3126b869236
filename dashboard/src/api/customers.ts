import { queryOptions } from "@tanstack/react-query";
import { answer, api } from "./client";

/** A customer by our id of it, which fits in an address whatever the tenant calls it. */
export const customer = (id: string) =>
  queryOptions({
    queryKey: ["customer", id],
    queryFn: ({ signal }) => answer(api.GET("/v1/customers/by-id", { params: { query: { id } }, signal })),
  });
