import { lazy, Suspense } from "react";
import { useUnit } from "../../api/meters";
import { useSession } from "../../api/session";
import type { Points } from "../../charts/points";
import { written } from "../../values/instants";

const Chart = lazy(() => import("../../charts/Chart").then(({ Chart }) => ({ default: Chart })));

/** Shows the chart of a meter's daily usage by all customers. */
export function DailyChart({ meter, points, end }: { meter: string; points: Points; end: string }) {
  const { tenant } = useSession();
  const unit = useUnit(meter);
  return (
    <Suspense fallback={<span data-loading />}>
      <Chart
        label={`Usage of ${meter} by all customers over time`}
        points={points}
        unit={unit}
        end={end}
        when={(start) => written(start, tenant.timezone, "day")}
        timezone={tenant.timezone}
      />
    </Suspense>
  );
}
