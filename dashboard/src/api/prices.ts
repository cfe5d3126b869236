import { queryOptions } from "@tanstack/react-query";
import { answer, api, type Schema } from "./client";

/** Whose price it is: a meter's own, or in a plan. */
export interface Priced {
  meter: string;
  plan?: string | undefined;
}

const inPlan = (plan: string, meter: string) => ({ slug: plan, meter });

/** The versions of a price. */
export const pricing = ({ meter, plan }: Priced) =>
  queryOptions({
    queryKey: ["pricing", meter, plan],
    queryFn: ({ signal }) =>
      plan === undefined
        ? answer(api.GET("/v1/meters/{slug}/pricing", { params: { path: { slug: meter } }, signal }))
        : answer(api.GET("/v1/plans/{slug}/pricing/{meter}", { params: { path: inPlan(plan, meter) }, signal })),
  });

/** The prices of all meters that have one of their own, or in a plan. */
export const pricings = (plan?: string) =>
  queryOptions({
    queryKey: ["pricing", { plan }],
    async queryFn({ signal }) {
      const all: Schema<"Pricing">[] = [];
      for (let token: string | null = ""; token !== null; ) {
        const query = { page_size: 200, ...(plan && { plan }), ...(token && { page_token: token }) };
        const page: Schema<"ListPricing"> = await answer(api.GET("/v1/pricing", { params: { query }, signal }));
        all.push(...page.data);
        token = page.next_page_token;
      }
      return all;
    },
  });

export function setPrice({ meter, plan }: Priced, body: Schema<"SetPricing">) {
  return plan === undefined
    ? answer(api.PUT("/v1/meters/{slug}/pricing", { params: { path: { slug: meter } }, body }))
    : answer(api.PUT("/v1/plans/{slug}/pricing/{meter}", { params: { path: inPlan(plan, meter) }, body }));
}

/** What a price would change. Nothing is set. */
export function previewPrice({ meter, plan }: Priced, body: Schema<"SetPricing">) {
  return plan === undefined
    ? answer(api.POST("/v1/meters/{slug}/pricing/preview", { params: { path: { slug: meter } }, body }))
    : answer(api.POST("/v1/plans/{slug}/pricing/{meter}/preview", { params: { path: inPlan(plan, meter) }, body }));
}

export function withdrawPrice({ meter, plan }: Priced, version: number) {
  return plan === undefined
    ? answer(api.DELETE("/v1/meters/{slug}/pricing/{version}", { params: { path: { slug: meter, version } } }))
    : answer(api.DELETE("/v1/plans/{slug}/pricing/{meter}/{version}", { params: { path: { ...inPlan(plan, meter), version } } }));
}
