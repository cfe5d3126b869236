import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { useSession } from "../../api/session";
import { windows } from "../../charts/points";
import { Failed } from "../../states/Failed";
import { LoadingRows } from "../../states/Loading";
import { sum } from "../../values/decimal";
import { cell, Table } from "../../values/Table";
import { Usage } from "../../values/Usage";
import { instantsOf } from "../customers/ranges";
import { listed, type Dimension } from "../usage/dimensions";
import { DailyChart } from "./DailyChart";
import styles from "./Overview.module.css";
import { daily, days, usageBy } from "./byDimension";

interface Props {
  meter: string;
  dimension: Dimension;
  /** The end of the last day. */
  end: string;
}

/** Shows the daily usage of a meter by a dimension: a chart of the largest values, and a table of their totals. */
export function UsageBy({ meter, dimension, end }: Props) {
  const { timezone } = useSession().tenant;
  const { start = "", end: until = "" } = instantsOf({ range: String(days) }, timezone, new Date());
  const { data, error, refetch } = useQuery(usageBy(meter, dimension, { start, end: until }));
  const points = useMemo(() => data && daily(data, windows(start, until, "day", timezone, new Date())), [data, start, until, timezone]);
  if (error) return <Failed what="The usage" error={error} retry={() => void refetch()} />;
  const columns = [{ title: dimension.title }, { title: `Last ${days} days`, number: true }];
  return (
    <>
      {data === null && <p className="muted">There are too many values for a chart by day.</p>}
      {data?.lines.length === 0 && <p className="muted">No usage in the last {days} days.</p>}
      {data !== null && data?.lines.length !== 0 && (
        <>
          <div className={styles.chart}>{points ? <DailyChart meter={meter} points={points} end={end} /> : <span data-loading />}</div>
          <Table caption={`Usage of ${meter} in the last ${days} days`} columns={columns} busy={!points}>
            {points ? (
              <tbody>
                {points.series.map(({ name, values }) => (
                  <tr key={name}>
                    <td className={cell.main}>{name}</td>
                    <td className={cell.number}>
                      <Usage meter={meter} value={sum(values)} />
                    </td>
                  </tr>
                ))}
              </tbody>
            ) : (
              <LoadingRows columns={2} rows={3} />
            )}
          </Table>
        </>
      )}
      <p className="small">
        <Link to="/usage" search={{ meter, range: String(days), by: listed([dimension.sent]), granularity: "day" }}>
          Usage of each day
        </Link>
      </p>
    </>
  );
}
