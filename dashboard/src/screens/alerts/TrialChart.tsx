import { lazy, Suspense } from "react";
import type { AlertDefinition } from "../../api/alerts";
import type { Schema } from "../../api/client";
import { useUnit } from "../../api/meters";
import { useSession } from "../../api/session";
import { LoadingText } from "../../states/Loading";
import { nextDay, startOfDay, written } from "../../values/instants";

const Chart = lazy(() => import("../../charts/Chart").then(({ Chart }) => ({ default: Chart })));

const values: Record<AlertDefinition["type"], string> = {
  usage: "Usage since the start of the billing period",
  spend: "Estimated charge of the billing period",
  quota: "Share of the quota that is used",
  silence: "",
};

/** Draws the values that are compared with the thresholds of an alert, at the end of each day. */
export function TrialChart({ definition, of }: { definition: AlertDefinition; of: Schema<"DryRunCourse"> }) {
  const { timezone } = useSession().tenant;
  const unitOfMeter = useUnit(definition.meter ?? "");
  const unit = { usage: unitOfMeter, spend: definition.currency, quota: "%", silence: undefined }[definition.type];
  const { customer_external_id: customer, days } = of;
  const starts = days.map(({ day }) => startOfDay(day, timezone));
  const points = { starts, series: [{ name: customer, values: days.map(({ value }) => value) }], thresholds: definition.thresholds ?? [] };
  const end = startOfDay(nextDay(days.at(-1)?.day ?? ""), timezone);
  const label = `${values[definition.type]}: ${customer}`;
  return (
    <div>
      <p>
        {label}.{!definition.customer && <span className="muted"> This customer has the highest value.</span>}
      </p>
      <Suspense fallback={<LoadingText />}>
        <Chart label={label} points={points} unit={unit} end={end} when={(start) => written(start, timezone, "day")} timezone={timezone} />
      </Suspense>
    </div>
  );
}
