import type { Schema } from "../../api/client";
import type { SyncRun } from "../../api/syncs";
import type { Meaning } from "../../values/State";

/** A state as users see it: its meaning, its word and its explanation. */
export type StateText = readonly [means: Meaning, word: string, says: string];

// Lists, tooltips and the screen of states read these tables, so that a state has the same text everywhere.

export const syncStates: Record<SyncRun["status"] | "paused", StateText> = {
  requested: ["waiting", "requested", "The sync is recorded, and its run starts in a moment."],
  running: ["waiting", "running", "The run reads the usage, reports it and checks the provider's counts. Failed steps are retried automatically."],
  paused: ["off", "paused", "An operator has paused the customer. No usage is reported until the customer is resumed."],
  succeeded: ["good", "succeeded", "The provider has accepted all reports, or there was nothing new to report."],
  failed: ["bad", "failed", "The sync ended before everything was reported. Fix the cause in its error, then sync again."],
};

export const reportStates: Record<Schema<"SyncLine">["state"], StateText> = {
  planned: ["waiting", "planned", "The report was not sent yet."],
  sending: ["waiting", "being sent", "The report may have arrived. The worker waits for the provider's answer."],
  in_doubt: ["bad", "unknown outcome", "It is unknown whether the report arrived. The report counts as billed until an invoice shows the contrary, or an operator checks at the provider and resolves it."],
  accepted: ["good", "accepted", "The provider has confirmed the report."],
  counted: ["good", "counted", "The provider's counts include the report."],
  rejected: ["bad", "rejected", "The provider does not have the report. The next sync reports its usage again."],
};

export const holdStates: Record<Schema<"InvoiceHold">["state"], StateText> = {
  planned: ["waiting", "being held", "The provider has not confirmed the hold yet."],
  held: ["waiting", "held", "The invoice waits until the reported usage is counted and compared with it."],
  disagrees: ["bad", "disagrees", "The invoice differs from the reported usage. It is held until it matches, an operator releases it, or its deadline passes."],
  releasing: ["waiting", "being released", "Odometer asks the provider to finalize the invoice."],
  released: ["good", "released", "The provider has finalized the invoice after its release."],
  expired: ["bad", "deadline passed", "The invoice became final at its deadline without a release."],
  finalized: ["off", "finalized at the provider", "A user or another system finalized the invoice at the provider."],
  theirs: ["off", "decided at the provider", "The draft was changed at the provider, so Odometer no longer acts on it."],
  refused: ["bad", "not held", "The provider refused the hold. The invoice becomes final as usual."],
};

export const reconciliationStates: Record<Schema<"Reconciliation">["state"], StateText> = {
  open: ["waiting", "waiting for the invoice", "The last invoice of the period is not final yet."],
  agreed: ["good", "agreed", "The final invoices bill exactly the usage."],
  carried: ["waiting", "billed next", "The final invoices bill less than the usage. A later period bills the difference."],
  waived: ["off", "waived", "The final invoices bill less than the usage. The difference is not billed, because an invoice was voided or an operator waived it. An operator can decide to rebill it."],
  disputed: ["bad", "disputed", "The final invoices bill more than the usage, or at another price. An operator must decide."],
  written_off: ["off", "written off", "The difference is recorded as a loss and never billed."],
};

export const periodStates: Record<Schema<"BillingPeriod">["state"], StateText> = {
  open: ["good", "open", "The period is running: its usage and charges can still change."],
  in_grace: ["waiting", "in grace", "The period is over but not closed. Late usage still counts in it."],
  closed: ["off", "closed", "The period's totals no longer change. Later events count as late usage."],
};

/** Returns the state of a sync. A paused sync is shown as paused, with any status. */
export const syncState = (run: SyncRun): StateText => syncStates[run.paused ? "paused" : run.status];

/** The reason why a sync was requested, by its trigger. */
export const triggers: Record<SyncRun["trigger"], string> = { manual: "a manual request", schedule: "Auto-Sync", provider: "the provider's message" };
