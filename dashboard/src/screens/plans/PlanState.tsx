import type { Schema } from "../../api/client";
import { State } from "../../values/State";

/** Shows whether a plan is offered or archived. */
export function PlanState({ plan }: { plan: Schema<"Plan"> }) {
  return plan.archived_at ? <State is="off">archived</State> : <State is="good">offered</State>;
}
