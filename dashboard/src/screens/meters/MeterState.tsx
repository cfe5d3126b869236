import type { Schema } from "../../api/client";
import { State } from "../../values/State";

/** Shows whether a meter counts, still counts earlier events or is archived. */
export function MeterState({ meter }: { meter: Schema<"Meter"> }) {
  const { backfill } = meter;
  if (meter.status === "backfilling") return <State is="waiting">{backfill ? `backfilling, ${backfill.counted_days} of ${backfill.days} days` : "backfilling"}</State>;
  if (meter.archived_at) return <State is="off">archived</State>;
  return <State is="good">counting</State>;
}
