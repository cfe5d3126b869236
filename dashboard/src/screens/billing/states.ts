import type { Schema } from "../../api/client";
import type { SyncRun } from "../../api/syncs";
import type { Meaning } from "../../values/State";

/** A state: what it means for who looks, its word, and what it says. */
export type Told = readonly [means: Meaning, word: string, says: string];

// Every state of billing in one place: lists, tooltips and the screen of states read it here.

export const syncStates: Record<SyncRun["status"] | "paused", Told> = {
  requested: ["waiting", "requested", "It is written down, and its run begins in a moment."],
  running: ["waiting", "running", "Usage is read, reported and looked up at the provider. Failed steps are retried automatically."],
  paused: ["off", "paused", "An operator has paused the customer: nothing is reported until it is resumed."],
  succeeded: ["good", "succeeded", "The provider has what there was to report, or there was nothing new."],
  failed: ["bad", "failed", "It ended without reporting everything. Its error says what to do; then sync again."],
};

export const reportStates: Record<Schema<"SyncLine">["state"], Told> = {
  planned: ["waiting", "written down", "It was never sent."],
  sending: ["waiting", "being sent", "It may have arrived: the worker waits for the answer."],
  in_doubt: ["bad", "in doubt", "It is unknown whether it arrived. It counts as billed until an invoice, or an operator who has checked at the provider, says otherwise."],
  accepted: ["good", "accepted", "The provider has answered that it has it."],
  counted: ["good", "counted", "It was seen in what the provider has counted."],
  rejected: ["bad", "rejected", "The provider does not have it. The next sync reports what it held."],
};

export const holdStates: Record<Schema<"InvoiceHold">["state"], Told> = {
  planned: ["waiting", "being held", "The provider has not taken the hold yet."],
  held: ["waiting", "held", "It waits until what was reported is counted and compared."],
  disagrees: ["bad", "disagrees", "What it bills differs from what was counted. It is held until it agrees, an operator releases it, or its deadline passes."],
  releasing: ["waiting", "being released", "The provider is told to make it final."],
  released: ["good", "released", "It was told to become final, and is."],
  expired: ["bad", "deadline passed", "It became final at its deadline, whatever it bills."],
  finalized: ["off", "finalized at the provider", "It was finalized outside Odometer."],
  theirs: ["off", "decided at the provider", "A user decides on the draft at the provider, so Odometer leaves it alone."],
  refused: ["bad", "not held", "The provider has refused the hold."],
};

export const reconciliationStates: Record<Schema<"Reconciliation">["state"], Told> = {
  open: ["waiting", "invoice awaited", "The last invoice of the period is not final yet."],
  agreed: ["good", "agreed", "The final invoices bill what was used."],
  carried: ["waiting", "billed next", "They lack something, which a later period bills."],
  waived: ["off", "waived", "They lack something because an invoice was voided; it is billed only if an operator decides so."],
  disputed: ["bad", "disputed", "They bill more than was used, or at another price. An operator has to decide."],
  written_off: ["off", "written off", "What they lack was given up."],
};

export const periodStates: Record<Schema<"BillingPeriod">["state"], Told> = {
  open: ["good", "open", "It runs: usage and charges go on."],
  in_grace: ["waiting", "over, and takes usage until it closes", "Usage that comes late still counts in it."],
  closed: ["off", "closed", "It never changes again: what comes late is an adjustment of a later one."],
};

/** Of a sync: one that is paused is nothing else. */
export const syncState = (run: SyncRun): Told => syncStates[run.paused ? "paused" : run.status];

/** Why a sync was asked for. */
export const triggers: Record<SyncRun["trigger"], string> = { manual: "a manual request", schedule: "Auto-Sync", provider: "the provider's message" };
