import type { LinkProps } from "@tanstack/react-router";
import type { Schema } from "../../api/client";
import { called } from "../../api/customers";
import { inWords } from "../../api/words";
import type { Meaning } from "../../values/State";

/** Something that goes on only when somebody does something, or that has not gone on for a while. */
export interface Need {
  id: string;
  what: string;
  who: string;
  /** bad: it needs somebody. What waits goes on by itself, or when somebody resumes it. */
  means: Extract<Meaning, "bad" | "waiting" | "off">;
  state: string;
  since: string | null;
  /** When it is too late. */
  until?: string;
  link: Pick<LinkProps, "to" | "params" | "search">;
}

interface Found {
  holds: Schema<"InvoiceHold">[];
  syncs: Schema<"SyncRun">[];
  running: Schema<"SyncRun">[];
  lines: Schema<"Reconciliation">[];
  audits: Schema<"UsageDiscrepancy">[];
  webhooks: Schema<"Webhook">[];
  meters: Schema<"Meter">[];
}

/** What needs somebody: first what has a deadline, then what no longer reports, then what waits for a decision, and last what goes on by itself. */
export function urgent({ holds, syncs, running, lines, audits, webhooks, meters }: Found): Need[] {
  const byDeadline = [...holds].sort((a, b) => a.deadline.localeCompare(b.deadline));
  return [
    ...byDeadline.map((hold) => ({
      id: hold.id,
      what: `Invoice ${hold.invoice_id}`,
      who: called(hold),
      means: "bad" as const,
      state: "disagrees",
      since: hold.looked_at,
      until: hold.deadline,
      link: { to: "/billing/holds", search: { hold: hold.id } } as const,
    })),
    ...syncs.map((sync) => ({
      id: sync.id,
      what: inWords(sync.error) || "Sync",
      who: called(sync),
      means: "bad" as const,
      state: "failed",
      since: sync.finished_at,
      link: { to: "/billing/syncs/$sync", params: { sync: sync.id } } as const,
    })),
    ...lines.map((line) => ({
      id: `${line.period.id}.${line.meter_id}`,
      what: `Invoices of ${line.meter_slug}`,
      who: called(line),
      means: "bad" as const,
      state: "disputed",
      since: line.period.end,
      link: { to: "/billing/reconciliation", search: { state: "disputed", open: `${line.period.id}.${line.meter_id}` } } as const,
    })),
    ...audits.map((audit) => ({
      id: `${audit.meter_id}.${audit.customer_id}.${audit.day}`,
      what: `Totals of ${audit.meter_slug} on ${audit.day}`,
      who: audit.customer_name || audit.customer_external_id || "all customers",
      means: "bad" as const,
      state: "differ from the events",
      since: audit.found_at,
      link: { to: "/billing/discrepancies" } as const,
    })),
    ...webhooks
      .filter((webhook) => webhook.failing_since !== null)
      .map((webhook) => ({
        id: webhook.id,
        what: webhook.url,
        who: "webhook",
        means: "bad" as const,
        state: "fails",
        since: webhook.failing_since,
        link: { to: "/developers/webhooks/$webhook", params: { webhook: webhook.id } } as const,
      })),
    ...running.flatMap(waiting),
    ...meters
      .filter((meter) => meter.status === "backfilling")
      .map((meter) => ({
        id: meter.id,
        what: `Past of ${meter.slug}`,
        who: "meter",
        means: "waiting" as const,
        state: meter.backfill ? `being counted, ${meter.backfill.counted_days} of ${meter.backfill.days} days` : "being counted",
        since: null,
        link: { to: "/meters/$meter/details", params: { meter: meter.slug } } as const,
      })),
  ];
}

/** A sync that is under way and has not gone on: somebody has paused it, or its provider does not take a report. */
function waiting(sync: Schema<"SyncRun">): Need[] {
  const need = { id: sync.id, who: called(sync), link: { to: "/billing/syncs/$sync", params: { sync: sync.id } } as const };
  if (sync.pause) return [{ ...need, what: `Paused: ${sync.pause.reason}`, means: "off", state: "paused", since: sync.pause.since }];
  if (sync.last_error) return [{ ...need, what: inWords(sync.last_error), means: "waiting", state: "tried again", since: sync.started_at }];
  return [];
}

/** The newest of each customer's syncs, of a list that begins with the newest. */
export function newestOfEach(syncs: Schema<"SyncRun">[]): Schema<"SyncRun">[] {
  const seen = new Set<string>();
  return syncs.filter(({ customer_id }) => !seen.has(customer_id) && seen.add(customer_id));
}
