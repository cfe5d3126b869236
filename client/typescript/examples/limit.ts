import type { Quotas } from "../client.js";

type Handler = (request: Request) => Promise<Response>;

/** The customer of a request. Replace it by your authentication. */
export const customerOf = (request: Request) => request.headers.get("X-Customer") ?? "";

/**
 * Answers 429 if a hard quota of the meter is used up for the customer, and passes other requests to next. It answers
 * 503 if there is no decision.
 */
export function limitCalls(quotas: Quotas, meter: string, next: Handler): Handler {
  return async (request) => {
    const check = await quotas.check({ customer: customerOf(request), meter, amount: "1" }).catch(() => undefined);
    if (check?.allowed) return next(request);
    if (!check || check.failure) return new Response("quotas are not available", { status: 503 });
    return refuse(check.resets_at);
  };
}

/** Answers 429. Retry-After is the time until the quota's next period, in seconds. */
export function refuse(resetsAt: string | null | undefined): Response {
  const headers = new Headers();
  if (resetsAt) headers.set("Retry-After", String(Math.max(Math.ceil((Date.parse(resetsAt) - Date.now()) / 1_000), 1)));
  return new Response("the quota is used up", { status: 429, headers });
}
