import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { Refused } from "../../acts/Refused";
import type { AlertDefinition } from "../../api/alerts";
import { useUnit } from "../../api/meters";
import { useSession } from "../../api/session";
import { LoadingText } from "../../states/Loading";
import { written } from "../../values/instants";
import { periodTotals } from "./periodTotals";

const Chart = lazy(() => import("../../charts/Chart").then(({ Chart }) => ({ default: Chart })));

/** The usage that is compared with the thresholds of an alert, day by day. */
export function UsageChart({ definition }: { definition: AlertDefinition }) {
  const { tenant, permissions } = useSession();
  const isAllowed = permissions.includes("billing:read");
  const { data, error } = useQuery({ ...periodTotals(definition, tenant.timezone), enabled: isAllowed });
  const unit = useUnit(definition.meter ?? "");
  if (!isAllowed) return <p className="muted">The chart needs the permission billing:read.</p>;
  if (error) return <Refused error={error} />;
  if (data === undefined) return <LoadingText />;
  if (data === null) return <p className="muted">No usage in the last 30 days.</p>;
  const { customer, points, end } = data;
  return (
    <div>
      <p>
        Usage of {customer} since the start of the billing period.
        {!definition.customer && <span className="muted"> This customer has the highest usage.</span>}
      </p>
      <Suspense fallback={<LoadingText />}>
        <Chart label={`Usage of ${definition.meter} by ${customer} since the start of the billing period`} points={points} unit={unit} end={end} when={(start) => written(start, tenant.timezone, "day")} timezone={tenant.timezone} />
      </Suspense>
    </div>
  );
}
