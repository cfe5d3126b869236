import type { Schema } from "../../api/client";
import type { Meaning } from "../../values/State";

const states: Record<Schema<"SyncLine">["state"], [Meaning, string]> = {
  planned: ["waiting", "written down"],
  sending: ["waiting", "being sent"],
  in_doubt: ["bad", "in doubt"],
  accepted: ["good", "accepted"],
  counted: ["good", "counted"],
  rejected: ["bad", "rejected"],
};

/** What a report's state means, and its words. */
export const reportState = (state: Schema<"SyncLine">["state"]) => states[state];
