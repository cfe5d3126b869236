import { Button } from "@mantine/core";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import type { Schema } from "../../api/client";
import { useUnit } from "../../api/meters";
import { useSession } from "../../api/session";
import { usage, type Range } from "../../api/usage";
import { Chart } from "../../charts/Chart";
import { points, windowEnd, windows, type Former, type Granularity, type Points } from "../../charts/points";
import { Failed } from "../../states/Failed";
import { LoadingRows } from "../../states/Loading";
import { csv, save } from "../../values/csv";
import { sum } from "../../values/decimal";
import { range as days, written } from "../../values/instants";
import { cell, Table } from "../../values/Table";
import { Usage } from "../../values/Usage";
import styles from "./CustomerUsage.module.css";
import { formerLine, formerRange } from "./former";

interface Props {
  customer: string;
  meter: string;
  by: string | undefined;
  range: Range;
}

/** Shows a customer's usage of one meter as a chart and a table, and offers it as a CSV file. */
export function MeterUsage({ customer, meter, by, range }: Props) {
  const { tenant } = useSession();
  const granularity: Granularity = by === "hour" || by === "week" || by === "month" ? by : "day";
  const { data, error, isPlaceholderData, refetch } = useQuery({ ...usage(customer, meter, granularity, range), placeholderData: keepPreviousData });
  const drawn = useMemo(
    () => data && points(data.groups, windows(data.period.start, data.period.end, data.granularity, tenant.timezone, new Date())),
    [data, tenant.timezone],
  );
  const former = useFormer(customer, meter, isPlaceholderData ? undefined : data, drawn, range.start === undefined);
  if (error) return <Failed what="The usage of the meter" error={error} retry={() => void refetch()} />;
  return (
    <section aria-label={`Usage of ${meter}`} aria-busy={isPlaceholderData} className={styles.one}>
      <div className={styles.head}>
        <h2>{meter}</h2>
        <span className="muted">{data && days(data.period.start, data.period.end, tenant.timezone)}</span>
        <span className={styles.total}>{data && <Usage meter={meter} value={data.total} />}</span>
        {data && data.groups.length > 0 && (
          <Button variant="default" size="xs" onClick={() => save(`usage-${customer}-${meter}.csv`, csv(rowsOf(data)), "text/csv;charset=utf-8")}>
            Download CSV
          </Button>
        )}
      </div>
      {data?.has_more && <p className="muted small">The chart, the list and the file contain only the first 50,000 windows of all groups. The total includes all windows.</p>}
      {data?.groups.length === 0 && <p className="muted">No usage in this time range.</p>}
      {(!data || data.groups.length > 0) && <Windows data={data} drawn={drawn} former={former} meter={meter} />}
    </section>
  );
}

/** Returns the usage of the previous range, if the chart has exactly one line. */
function useFormer(customer: string, meter: string, data: Schema<"UsageResult"> | undefined, drawn: Points | undefined, ofMonth: boolean): Former | undefined {
  const { timezone } = useSession().tenant;
  const one = data !== undefined && drawn?.series.length === 1 && drawn.starts.length > 0;
  const before = one ? formerRange(drawn.starts, data.granularity, ofMonth, timezone) : {};
  const { data: used } = useQuery({ ...usage(customer, meter, data?.granularity ?? "day", before), enabled: one });
  const name = ofMonth ? "the previous month" : "the previous time range";
  return useMemo(() => (one && used ? formerLine(used, data.granularity, drawn.starts.length, timezone, name) : undefined), [one, used, data, drawn, timezone, name]);
}

interface Shown {
  data: Schema<"UsageResult"> | undefined;
  drawn: Points | undefined;
  former: Former | undefined;
  meter: string;
}

/** Shows the usage by window, as a chart and as a list. */
function Windows({ data, drawn, former, meter }: Shown) {
  const { tenant } = useSession();
  const [all, setAll] = useState(false);
  const unit = useUnit(meter);
  const charted = useMemo(() => drawn && { ...drawn, former }, [drawn, former]);
  if (!data || !drawn || !charted) {
    return (
      <Table caption={`Usage of ${meter}`} columns={[{ title: "When" }, { title: "Usage", number: true }]} busy>
        <LoadingRows columns={2} />
      </Table>
    );
  }
  const when = (start: string) => written(start, tenant.timezone, named[data.granularity]);
  const many = drawn.series.length > 1;
  const columns = [{ title: "When" }, ...drawn.series.map(({ name }) => ({ title: name, number: true })), ...(many ? [{ title: "All", number: true }] : [])];
  const newest = drawn.starts.map((_, index) => index).reverse();
  const shown = all ? newest : newest.slice(0, rowsAtFirst);
  return (
    <>
      <Chart label={`Usage of ${meter} over time`} points={charted} unit={unit} end={windowEnd(drawn.starts.at(-1)!, data.granularity, tenant.timezone)} when={when} timezone={tenant.timezone} />
      <Table caption={`Usage of ${meter}, the latest first`} columns={columns}>
        <tbody>
          {shown.map((index) => (
            <tr key={index}>
              <td className="number">{when(drawn.starts[index]!)}</td>
              {drawn.series.map(({ name, values }) => (
                <td key={name} className={cell.number} data-title={many ? name : undefined}>
                  <Usage meter={meter} value={values[index]!} />
                </td>
              ))}
              {many && (
                <td className={cell.number} data-title="all">
                  <Usage meter={meter} value={sum(drawn.series.map(({ values }) => values[index]!))} />
                </td>
              )}
            </tr>
          ))}
        </tbody>
      </Table>
      {shown.length < newest.length && (
        <Button className={styles.more} variant="default" size="xs" onClick={() => setAll(true)}>{`Show all ${newest.length} windows`}</Button>
      )}
    </>
  );
}

const rowsAtFirst = 62;

/** The format of a window's start, which names the window, by granularity. */
const named = { hour: "minute", day: "day", week: "date", month: "month" } as const;

/** Returns a header, and a row for each window of each group. Values keep every digit of the API's response. */
function rowsOf({ groups }: Schema<"UsageResult">): string[][] {
  const properties = Object.keys(groups[0]?.group_key ?? {}).sort();
  const rows = groups.flatMap(({ group_key, windows }) => {
    const key = group_key as Record<string, unknown>;
    return windows.map((window) => [
      window.window_start,
      window.window_end,
      ...properties.map((property) => String(key[property] ?? "")),
      window.value,
      window.late_value,
      String(window.is_final),
    ]);
  });
  return [["window_start", "window_end", ...properties, "value", "late_value", "is_final"], ...rows];
}
