import type { Schema } from "../../api/client";

type Tenant = Schema<"Tenant">;
export type TenantChange = Schema<"UpdateTenant">;

/** The settings as the user types them. Numbers are text too until they are sent. */
export interface Typed {
  name: string;
  timezone: string;
  currency: string;
  graceHours: string;
  latePolicy: Tenant["late_policy"];
  requestsPerMinute: string;
  strict: boolean;
  conflicts: Tenant["idempotency_conflicts"];
  v1BodylessWrites: boolean;
  hold: boolean;
  holdHours: string;
}

/** Returns the settings as the form shows them. */
export const typedOf = (tenant: Tenant): Typed => ({
  name: tenant.name,
  timezone: tenant.timezone,
  currency: tenant.currency,
  graceHours: String(tenant.grace_hours),
  latePolicy: tenant.late_policy,
  requestsPerMinute: String(tenant.requests_per_minute),
  strict: tenant.strict,
  conflicts: tenant.idempotency_conflicts,
  v1BodylessWrites: tenant.v1_bodyless_writes,
  hold: tenant.invoice_hold.enabled,
  holdHours: String(tenant.invoice_hold.deadline_hours),
});

/** Returns the request with the changed settings only. */
export function changeOf(tenant: Tenant, typed: Typed): TenantChange {
  const is = typedOf(tenant);
  const hold = {
    ...(typed.hold !== is.hold && { enabled: typed.hold }),
    ...(typed.holdHours !== is.holdHours && { deadline_hours: Number(typed.holdHours) }),
  };
  return {
    ...(typed.name !== is.name && { name: typed.name }),
    ...(typed.timezone !== is.timezone && { timezone: typed.timezone }),
    ...(typed.currency !== is.currency && { currency: typed.currency }),
    ...(typed.graceHours !== is.graceHours && { grace_hours: Number(typed.graceHours) }),
    ...(typed.latePolicy !== is.latePolicy && { late_policy: typed.latePolicy }),
    ...(typed.requestsPerMinute !== is.requestsPerMinute && { requests_per_minute: Number(typed.requestsPerMinute) }),
    ...(typed.strict !== is.strict && { strict: typed.strict }),
    ...(typed.conflicts !== is.conflicts && { idempotency_conflicts: typed.conflicts }),
    ...(typed.v1BodylessWrites !== is.v1BodylessWrites && { v1_bodyless_writes: typed.v1BodylessWrites }),
    ...(Object.keys(hold).length > 0 && { invoice_hold: hold }),
  };
}

/** Returns the effect of each change, in the order of the fields. */
export function effects(tenant: Tenant, { timezone, currency, grace_hours: grace, late_policy: late, requests_per_minute: requests, strict, idempotency_conflicts: conflicts, v1_bodyless_writes: v1, invoice_hold: hold }: TenantChange): string[] {
  const says: [unknown, string][] = [
    [timezone, `Every meter is counted again in days and months of ${timezone}. Until that is complete, usage is shown in ${tenant.timezone}. The change is refused once a customer has a billing period.`],
    [currency, `New prices without a currency are in ${currency}. Existing prices keep their currency.`],
    [grace, `Billing periods close ${grace} hours after their end; usage until then still counts. Closed periods stay closed.`],
    [late, late === "adjust" ? "Late usage of a closed period is billed as an adjustment." : "Late usage of a closed period is shown, but not billed."],
    [requests, `Above ${requests} requests with events per minute, further requests get 429.`],
    [strict, strict ? "Events with an unknown customer, event type or field are rejected." : "An event creates its customer if it does not exist, and is counted once a meter for its type exists."],
    [conflicts, conflicts === "reject" ? "An event that reuses a key with other content is rejected." : "An event that reuses a key with other content is accepted, but not counted, and listed as a conflict."],
    [v1, v1 ? "Anyone who sees a request without a body and with a v1 signature can use that signature for another request without a body." : "A request without a body and with a v1 signature can only read."],
    [hold?.enabled, hold?.enabled ? "Draft invoices with usage are held until the reported usage is counted and compared with them." : "No further draft invoice is held."],
    [hold?.deadline_hours, `Invoices held from now on become final automatically ${hold?.deadline_hours} hours after the grace period. Invoices already held keep their deadline.`],
  ];
  return says.filter(([changed]) => changed !== undefined).map(([, effect]) => effect);
}
