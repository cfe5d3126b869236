import { queryOptions } from "@tanstack/react-query";
import { answer, api, exactAnswer, type Schema } from "./client";
import { customerParams } from "./customers";

/** The meter of a price and its owner: a plan (slug) or a customer (external ID). Without either, the meter owns it. */
export interface Priced {
  meter: string;
  plan?: string | undefined;
  customer?: string | undefined;
}

/** Returns the path parameters of a meter's price in a plan. */
const planPath = (plan: string, meter: string) => ({ slug: plan, meter });

/** Returns the parameters of a meter's price for a customer. */
const customerPriceParams = (customer: string, meter: string) => ({ path: { ...customerParams(customer).path, meter }, query: customerParams(customer).query });

/** Reads the versions of a price: the customer's, the plan's or else the meter's own. */
function readPricing({ meter, plan, customer }: Priced, signal: AbortSignal) {
  const text = { parseAs: "text", signal } as const;
  if (customer !== undefined) return exactAnswer<Schema<"Pricing">>(api.GET("/v1/customers/{external_id}/pricing/{meter}", { params: customerPriceParams(customer, meter), ...text }));
  return plan === undefined
    ? exactAnswer<Schema<"Pricing">>(api.GET("/v1/meters/{slug}/pricing", { params: { path: { slug: meter } }, ...text }))
    : exactAnswer<Schema<"Pricing">>(api.GET("/v1/plans/{slug}/pricing/{meter}", { params: { path: planPath(plan, meter) }, ...text }));
}

/** Queries the versions of a price. Numbers in the values of its dimensions keep every digit. */
export const pricing = (of: Priced) =>
  queryOptions({
    queryKey: ["pricing", of.meter, of.plan, of.customer],
    queryFn: ({ signal }) => readPricing(of, signal),
  });

/**
 * Queries the price that applies now without the owner's own price: for a customer, the price of the customer's plan;
 * without such a plan or price, the meter's price. null: there is none.
 */
export const replacedPrice = ({ meter, plan, customer }: Priced) =>
  queryOptions({
    queryKey: ["pricing", "replaced", meter, plan, customer],
    async queryFn({ signal }) {
      const assigned = customer === undefined ? null : (await answer(api.GET("/v1/customers/{external_id}/plan", { params: customerParams(customer), signal }))).plan;
      const planPrice = assigned === null ? undefined : (await readPricing({ meter, plan: assigned }, signal)).current;
      return planPrice ?? (await readPricing({ meter }, signal)).current ?? null;
    },
  });

/** Queries the meters' own prices, or all prices of a plan or of a customer. */
export const pricings = (of: Omit<Priced, "meter"> = {}) =>
  queryOptions({
    queryKey: ["pricing", of],
    async queryFn({ signal }) {
      const all: Schema<"Pricing">[] = [];
      for (let token: string | null = ""; token !== null; ) {
        const query = { page_size: 200, ...(of.plan && { plan: of.plan }), ...(of.customer !== undefined && { customer: of.customer }), ...(token && { page_token: token }) };
        const page: Schema<"ListPricing"> = await answer(api.GET("/v1/pricing", { params: { query }, signal }));
        all.push(...page.data);
        token = page.next_page_token;
      }
      return all;
    },
  });

/** Requests a new version of a price: the customer's, the plan's or else the meter's own. */
export function setPrice({ meter, plan, customer }: Priced, body: Schema<"SetPricing">) {
  if (customer !== undefined) return answer(api.PUT("/v1/customers/{external_id}/pricing/{meter}", { params: customerPriceParams(customer, meter), body }));
  return plan === undefined
    ? answer(api.PUT("/v1/meters/{slug}/pricing", { params: { path: { slug: meter } }, body }))
    : answer(api.PUT("/v1/plans/{slug}/pricing/{meter}", { params: { path: planPath(plan, meter) }, body }));
}

/** Calculates the effect of a price without setting the price. */
export function previewPrice({ meter, plan, customer }: Priced, body: Schema<"SetPricing">) {
  if (customer !== undefined) return answer(api.POST("/v1/customers/{external_id}/pricing/{meter}/preview", { params: customerPriceParams(customer, meter), body }));
  return plan === undefined
    ? answer(api.POST("/v1/meters/{slug}/pricing/preview", { params: { path: { slug: meter } }, body }))
    : answer(api.POST("/v1/plans/{slug}/pricing/{meter}/preview", { params: { path: planPath(plan, meter) }, body }));
}

/** Requests the withdrawal of a version that has not taken effect yet. */
export function withdrawPrice({ meter, plan, customer }: Priced, version: number) {
  if (customer !== undefined) {
    const { path, query } = customerPriceParams(customer, meter);
    return answer(api.DELETE("/v1/customers/{external_id}/pricing/{meter}/{version}", { params: { path: { ...path, version }, query } }));
  }
  return plan === undefined
    ? answer(api.DELETE("/v1/meters/{slug}/pricing/{version}", { params: { path: { slug: meter, version } } }))
    : answer(api.DELETE("/v1/plans/{slug}/pricing/{meter}/{version}", { params: { path: { ...planPath(plan, meter), version } } }));
}

/** Ends a customer's own price at the default time of the API. */
export function endPrice(customer: string, meter: string, confirm: string | undefined) {
  return answer(api.POST("/v1/customers/{external_id}/pricing/{meter}/end", { params: customerPriceParams(customer, meter), body: { ...(confirm && { confirm }) } }));
}

/** The fields of a price without its start. */
export type Terms = Omit<Schema<"Calculate">, "usage" | "steps">;

/** Queries the charges of terms for up to 100 quantities, in the order of the quantities. The API saves nothing. */
export const calculation = (terms: Terms, usage: Schema<"Quantity">[], steps: boolean) =>
  queryOptions({
    queryKey: ["calculation", terms, usage, steps],
    queryFn: ({ signal }) => answer(api.POST("/v1/pricing/calculate", { body: { ...terms, usage, steps }, signal })),
    staleTime: Infinity, // the same terms always charge the same
  });

const mostQuantities = 100;

/** Queries the charges of several terms for the same quantities: a list for each, in the order of the quantities. */
export const chargesAt = (all: Terms[], quantities: string[]) =>
  queryOptions({
    queryKey: ["calculation", all, quantities],
    async queryFn({ signal }) {
      const charged = (terms: Terms, from: number) => {
        const usage = quantities.slice(from, from + mostQuantities).map((quantity) => ({ quantity }));
        return answer(api.POST("/v1/pricing/calculate", { body: { ...terms, usage, steps: false }, signal }));
      };
      const parts = quantities.flatMap((_, index) => (index % mostQuantities === 0 ? [index] : []));
      const charges = await Promise.all(
        all.map(async (terms) => {
          const pages = await Promise.all(parts.map((from) => charged(terms, from)));
          return pages.flatMap((page) => page.charges.map(({ charge }) => charge));
        }),
      );
      return { quantities, charges };
    },
    staleTime: Infinity,
  });

/** Reports whether a price has only a base price, included units and an overage rate. */
export const isShort = (price: Schema<"Price">) => price.model === "overage" && price.minimum_charge === undefined && price.maximum_charge === undefined;
