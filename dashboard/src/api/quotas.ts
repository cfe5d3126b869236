import { queryOptions } from "@tanstack/react-query";
import { answer, api, exactAnswer, type Schema } from "./client";
import { customerParams } from "./customers";

export type Quota = Schema<"Quota">;
export type SetQuota = Schema<"SetQuota">;

/** The customer (external ID) or the plan (slug) of a quota. */
export type QuotaSubject = Pick<SetQuota, "customer"> | Pick<SetQuota, "plan">;

/** A quota of a customer with its usage. own: the quota is the customer's, not the plan's. */
export interface EntitledQuota extends Schema<"EntitledToQuota"> {
  quota_id: string;
  used: string;
  reserved: string;
  own: boolean;
}

const mostQuotas = 100; // per customer, and per plan

/** Queries the quotas of a customer or a plan. */
export const quotas = (subject: QuotaSubject) =>
  queryOptions({
    queryKey: ["quotas", subject],
    queryFn: ({ signal }) => readQuotas(subject, signal),
  });

/** Reads the quotas of a customer or a plan. */
const readQuotas = (subject: QuotaSubject, signal: AbortSignal) =>
  exactAnswer<Schema<"ListQuota">>(api.GET("/v1/quotas", { params: { query: { page_size: mostQuotas, ...subject } }, parseAs: "text", signal }));

interface Entitlements extends Omit<Schema<"Entitlements">, "quotas"> {
  quotas: Omit<EntitledQuota, "own">[];
}

/** Queries the plan of a customer, the features, and a list of the quotas that apply to the customer. */
export const entitlements = (customer: string) =>
  queryOptions({
    queryKey: ["quotas", "entitlements", customer],
    async queryFn({ signal }) {
      const [{ plan, features, quotas }, own] = await Promise.all([
        exactAnswer<Entitlements>(api.GET("/v1/customers/{external_id}/entitlements", { params: customerParams(customer), parseAs: "text", signal })),
        readQuotas({ customer }, signal),
      ]);
      const ownIDs = new Set(own.data.map(({ id }) => id));
      const data: EntitledQuota[] = quotas.map((quota) => ({ ...quota, own: ownIDs.has(quota.quota_id) }));
      return { plan, features, data, next_page_token: null };
    },
  });

/** Sets a quota of a customer or a plan. */
export const setQuota = (body: SetQuota) => answer(api.PUT("/v1/quotas", { body }));

/** Requests the deletion of a quota. */
export const deleteQuota = (id: string) => answer(api.DELETE("/v1/quotas/{id}", { params: { path: { id } } }));
