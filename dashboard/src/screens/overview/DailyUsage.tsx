import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useMemo } from "react";
import { answer, api, type Schema } from "../../api/client";
import { useSession } from "../../api/session";
import type { Points } from "../../charts/points";
import { Filter } from "../../frame/Filter";
import { Failed } from "../../states/Failed";
import { Quantity } from "../../values/Amount";
import { sum } from "../../values/decimal";
import { day, nextDay, startOfDay, written } from "../../values/instants";
import styles from "./Overview.module.css";

const Chart = lazy(() => import("../../charts/Chart").then(({ Chart }) => ({ default: Chart })));

const days = 30;

/** What all customers together have used of a meter, day by day, and in as many days before. */
export function DailyUsage() {
  const { tenant } = useSession();
  const { meter } = useSearch({ from: "/frame/overview" });
  const { data, error, refetch } = useQuery({
    queryKey: ["daily"],
    queryFn: ({ signal }) => answer(api.GET("/v1/usage/daily", { params: { query: { days: 2 * days } }, signal })),
    staleTime: 60_000,
  });
  const meters = data?.meters.filter((one) => !one.backfilling) ?? [];
  const chosen = meters.find((one) => one.meter_slug === meter) ?? meters[0];
  const points = useMemo(() => chosen && compared(chosen, data!.period.start, tenant.timezone), [chosen, data, tenant.timezone]);
  if (error) return <Failed what="The usage" error={error} retry={() => void refetch()} />;
  if (data && !chosen) return null;
  return (
    <section aria-label="Usage">
      <div className={styles.usage}>
        <h2>Usage of all customers</h2>
        {meters.length > 1 && <Filter name="meter" label="Meter" options={meters.map(({ meter_slug: slug }, index) => [index === 0 ? "" : slug, slug] as const)} />}
        {meters.length === 1 && <span className="muted">{chosen?.meter_slug}</span>}
        {points && <span className={styles.total}>{<Quantity value={sum(points.series[0]!.values)} />}</span>}
      </div>
      <div className={styles.chart}>
        {!data && <span data-loading />}
        {chosen && points && (
          <Suspense fallback={<span data-loading />}>
            <Chart
              label={`Usage of ${chosen.meter_slug} by all customers over time`}
              points={points}
              end={data!.period.end}
              when={(start) => written(start, tenant.timezone, "day")}
              timezone={tenant.timezone}
            />
          </Suspense>
        )}
      </div>
    </section>
  );
}

/** The last days, and each beside the one that was so many days before. */
export function compared(meter: Schema<"MeterDaily">, start: string, timezone: string): Points {
  const usage = new Map(meter.days.map((one) => [day(one.start, timezone), one.usage]));
  const first = day(start, timezone);
  const of = (from: number) => Array.from({ length: days }, (_, index) => nextDay(first, from + index));
  const values = (of: string[]) => of.map((one) => usage.get(one) ?? "0");
  return {
    starts: of(days).map((one) => startOfDay(one, timezone)),
    series: [{ name: `last ${days} days`, values: values(of(days)) }],
    former: { name: `the ${days} days before`, values: values(of(0)) },
  };
}
