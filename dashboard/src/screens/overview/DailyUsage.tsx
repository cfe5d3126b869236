import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { answer, api, type Schema } from "../../api/client";
import { allMeters } from "../../api/meters";
import { useSession } from "../../api/session";
import type { Points } from "../../charts/points";
import { Filter } from "../../frame/Filter";
import { Failed } from "../../states/Failed";
import { sum } from "../../values/decimal";
import { day, nextDay, startOfDay } from "../../values/instants";
import { Usage } from "../../values/Usage";
import { dimensionsOf } from "../usage/dimensions";
import { DailyChart } from "./DailyChart";
import styles from "./Overview.module.css";
import { UsageBy } from "./UsageBy";
import { days } from "./byDimension";

/** Shows a meter's daily usage by all customers: in total with the previous days to compare, or by a dimension. */
export function DailyUsage() {
  const { tenant, permissions } = useSession();
  const { meter, by } = useSearch({ from: "/frame/overview" });
  const { data, error, refetch } = useQuery({
    queryKey: ["daily"],
    queryFn: ({ signal }) => answer(api.GET("/v1/usage/daily", { params: { query: { days: 2 * days } }, signal })),
    staleTime: 60_000,
  });
  const { data: known } = useQuery({ ...allMeters, enabled: permissions.includes("meters:read") });
  const meters = data?.meters.filter((one) => !one.backfilling) ?? [];
  const chosen = meters.find((one) => one.meter_slug === meter) ?? meters[0];
  const points = useMemo(() => chosen && comparedUsage(chosen, data!.period.start, tenant.timezone), [chosen, data, tenant.timezone]);
  if (error) return <Failed what="The usage" error={error} retry={() => void refetch()} />;
  if (data && !chosen) return null;
  const dimensions = dimensionsOf(known?.find(({ slug }) => slug === chosen?.meter_slug)?.group_by ?? []);
  const dimension = dimensions.find(({ sent }) => sent === by);
  return (
    <section aria-label="Usage">
      <div className={styles.usage}>
        <h2>Usage of all customers</h2>
        {meters.length > 1 && <Filter name="meter" label="Meter" options={meters.map(({ meter_slug: slug }, index) => [index === 0 ? "" : slug, slug] as const)} />}
        {meters.length === 1 && <span className="muted">{chosen?.meter_slug}</span>}
        {chosen && <Filter name="by" label="Break down by" options={[["", "All together"], ...dimensions.map(({ sent, title, property }) => [sent, `By ${property ?? title.toLowerCase()}`] as const)]} />}
        {chosen && points && !dimension && (
          <span className={styles.total}>
            <Usage meter={chosen.meter_slug} value={sum(points.series[0]!.values)} />
          </span>
        )}
      </div>
      {chosen && dimension ? (
        <UsageBy key={`${chosen.meter_slug} ${dimension.sent}`} meter={chosen.meter_slug} dimension={dimension} end={data!.period.end} />
      ) : (
        <div className={styles.chart}>
          {!data && <span data-loading />}
          {chosen && points && <DailyChart meter={chosen.meter_slug} points={points} end={data!.period.end} />}
        </div>
      )}
    </section>
  );
}

/** Returns the usage of the last days, and of as many days before them for comparison. */
export function comparedUsage(meter: Schema<"MeterDaily">, start: string, timezone: string): Points {
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
