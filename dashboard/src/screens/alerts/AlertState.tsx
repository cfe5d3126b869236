import type { Alert } from "../../api/alerts";
import { State } from "../../values/State";

/** Shows whether an alert is enabled. */
export function AlertState({ of: { enabled } }: { of: Alert }) {
  return enabled ? <State is="good">enabled</State> : <State is="off">disabled</State>;
}
