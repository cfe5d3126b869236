import type { LinkProps } from "@tanstack/react-router";
import type { AttentionCause, AttentionItem } from "../../api/attention";
import type { Meaning } from "../../values/State";

type Kind = AttentionItem["kind"];
type To = Pick<LinkProps, "to" | "params" | "search">;

/** The title and the meaning of each kind of item, and the screen on which an operator handles an item. */
export const kinds: Record<Kind, { title: string; means: Extract<Meaning, "bad" | "waiting">; link: (item: AttentionItem) => To }> = {
  hold_disagrees: { title: "Held invoice", means: "bad", link: ({ id }) => ({ to: "/billing/holds", search: { hold: id } }) },
  sync_failed: { title: "Sync failed", means: "bad", link: ({ id }) => ({ to: "/billing/syncs/$sync", params: { sync: id } }) },
  reconciliation_disputed: {
    title: "Invoices disputed",
    means: "bad",
    link: ({ id }) => ({ to: "/billing/reconciliation", search: { state: "disputed", open: id.replace("/", ".") } }),
  },
  usage_discrepancy: { title: "Totals differ", means: "bad", link: () => ({ to: "/billing/discrepancies" }) },
  unrated_usage: { title: "Not billed", means: "bad", link: () => ({ to: "/billing/unrated" }) },
  event_conflict: { title: "Not counted", means: "bad", link: () => ({ to: "/events/conflicts" }) },
  webhook_disabled: { title: "Webhook disabled", means: "bad", link: ({ id }) => ({ to: "/developers/webhooks/$webhook", params: { webhook: id } }) },
  webhook_failing: { title: "Webhook failing", means: "bad", link: ({ id }) => ({ to: "/developers/webhooks/$webhook", params: { webhook: id } }) },
  sync_delayed: { title: "Sync delayed", means: "waiting", link: ({ id }) => ({ to: "/billing/syncs/$sync", params: { sync: id } }) },
  backfill_stuck: { title: "Backfill stuck", means: "waiting", link: ({ reference }) => ({ to: "/meters/$meter/details", params: { meter: reference } }) },
  alert_triggered: { title: "Alert", means: "waiting", link: ({ id }) => ({ to: "/alerts/$alert", params: { alert: id.split("/", 1)[0] ?? "" } }) },
};

/** Items of one kind and cause, with the total number of such items. */
export interface Group {
  kind: Kind;
  cause: string;
  count: number;
  items: AttentionItem[];
}

/** Groups the items by kind and cause, in the API's order. The counts include items that were not read. */
export function grouped(items: AttentionItem[], causes: AttentionCause[]): Group[] {
  const groups: Group[] = [];
  for (const item of items) {
    let last = groups.at(-1);
    if (last?.kind !== item.kind || last.cause !== item.cause) {
      last = { kind: item.kind, cause: item.cause, count: 0, items: [] };
      groups.push(last);
    }
    last.items.push(item);
  }
  return groups.map((group) => ({
    ...group,
    count: Math.max(group.items.length, causes.find(({ kind, cause }) => kind === group.kind && cause === group.cause)?.count ?? 0),
  }));
}
