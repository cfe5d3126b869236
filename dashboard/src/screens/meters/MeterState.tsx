import type { Schema } from "../../api/client";
import { State } from "../../values/State";

export function MeterState({ meter }: { meter: Schema<"Meter"> }) {
  if (meter.status === "backfilling") return <State is="waiting">backfilling</State>;
  if (meter.archived_at) return <State is="off">archived</State>;
  return <State is="good">counting</State>;
}
