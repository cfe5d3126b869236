import type { LinkProps } from "@tanstack/react-router";
import type { Schema } from "../../api/client";
import { called } from "../../api/customers";

/** Something that goes on only when somebody does something. */
export interface Need {
  id: string;
  what: string;
  who: string;
  state: string;
  since: string | null;
  link: Pick<LinkProps, "to" | "params" | "search">;
}

interface Found {
  holds: Schema<"InvoiceHold">[];
  syncs: Schema<"SyncRun">[];
  lines: Schema<"Reconciliation">[];
  audits: Schema<"UsageDiscrepancy">[];
  webhooks: Schema<"Webhook">[];
}

/** What needs somebody: first what has a deadline, then what no longer reports, then what waits for a decision. */
export function urgent({ holds, syncs, lines, audits, webhooks }: Found): Need[] {
  const byDeadline = [...holds].sort((a, b) => a.deadline.localeCompare(b.deadline));
  return [
    ...byDeadline.map((hold) => ({
      id: hold.id,
      what: `Invoice ${hold.invoice_id}`,
      who: called(hold),
      state: "disagrees",
      since: hold.looked_at,
      link: { to: "/billing/holds", search: { hold: hold.id } } as const,
    })),
    ...syncs.map((sync) => ({
      id: sync.id,
      what: sync.error || "Sync",
      who: called(sync),
      state: "failed",
      since: sync.finished_at,
      link: { to: "/billing/syncs/$sync", params: { sync: sync.id } } as const,
    })),
    ...lines.map((line) => ({
      id: `${line.period.id}.${line.meter_id}`,
      what: `Invoices of ${line.meter_slug}`,
      who: called(line),
      state: "disputed",
      since: line.period.end,
      link: { to: "/billing/reconciliation", search: { state: "disputed", open: `${line.period.id}.${line.meter_id}` } } as const,
    })),
    ...audits.map((audit) => ({
      id: `${audit.meter_id}.${audit.customer_id}.${audit.day}`,
      what: `Totals of ${audit.meter_slug} on ${audit.day}`,
      who: audit.customer_name || audit.customer_external_id || "all customers",
      state: "differ from the events",
      since: audit.found_at,
      link: { to: "/billing" } as const,
    })),
    ...webhooks
      .filter((webhook) => webhook.failing_since !== null)
      .map((webhook) => ({ id: webhook.id, what: webhook.url, who: "webhook", state: "fails", since: webhook.failing_since, link: { to: "/developers/webhooks/$webhook", params: { webhook: webhook.id } } as const })),
  ];
}

/** The newest of each customer's syncs, of a list that begins with the newest. */
export function newestOfEach(syncs: Schema<"SyncRun">[]): Schema<"SyncRun">[] {
  const seen = new Set<string>();
  return syncs.filter(({ customer_id }) => !seen.has(customer_id) && seen.add(customer_id));
}
