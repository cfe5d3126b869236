import type { SyncRun } from "../../api/syncs";
import type { Meaning } from "../../values/State";

const states: Record<SyncRun["status"], [Meaning, string]> = {
  requested: ["waiting", "requested"],
  running: ["waiting", "running"],
  succeeded: ["good", "succeeded"],
  failed: ["bad", "failed"],
};

/** What a sync's state means, and its word. */
export const syncState = (run: SyncRun): [Meaning, string] => (run.paused ? ["off", "paused"] : states[run.status]);

/** Why a sync was asked for. */
export const triggers: Record<SyncRun["trigger"], string> = { manual: "somebody asked", schedule: "Auto-Sync", provider: "the provider's message" };
