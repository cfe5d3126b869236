import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { byDay, eventCounts, eventsOf, isUncounted, percentOf, type Outcome } from "../../api/eventCounts";
import { useSession } from "../../api/session";
import { Trend } from "../../charts/Trend";
import { Failed } from "../../states/Failed";
import { LoadingRows } from "../../states/Loading";
import { Quantity } from "../../values/Amount";
import { day, nextDay, startOfDay, written } from "../../values/instants";
import { cell, Table } from "../../values/Table";
import styles from "./Overview.module.css";

const days = 30;
const columns = [{ title: "Events" }, { title: "Today", number: true }, { title: `Last ${days} days`, number: true }, { title: "Share", number: true }, { title: "Trend", number: true }];
const outcomes: [Outcome, string][] = [
  ["accepted", "Accepted"],
  ["duplicates", "Accepted events that were repeats"],
  ["conflicts", "Repeats with the key of another event"],
  ["value_missing", "Accepted events without a value for a meter"],
  ["value_invalid", "Accepted events with an unusable value for a meter"],
  ["rejected", "Rejected"],
];

/** Shows the outcomes of the events that were sent today and in the last days. */
export function EventCounts() {
  const { tenant } = useSession();
  const { data, error, refetch } = useQuery(eventCounts(days, tenant.timezone));
  if (error) return <Failed what="The event statistics" error={error} retry={() => void refetch()} />;
  const each = data && byDay(data, days, tenant.timezone, new Date());
  const shown = outcomes.filter(([outcome]) => !isUncounted(outcome) || eventsOf(data, outcome) > 0);
  const today = day(new Date(), tenant.timezone);
  return (
    <section aria-label="Events" className={styles.events}>
      <Table caption="Events by outcome" columns={columns} busy={!data}>
        {data && each ? (
          <tbody>
            {shown.map(([outcome, name]) => (
              <tr key={outcome}>
                <td className={cell.main}>{outcome === "rejected" ? <Link to="/events/rejected">{name}</Link> : outcome === "conflicts" ? <Link to="/events/conflicts">{name}</Link> : name}</td>
                <td className={cell.number} data-title="today">
                  <Quantity value={String(eventsOf(each.at(-1), outcome))} />
                </td>
                <td className={cell.number} data-title={`${days} days`}>
                  <Quantity value={String(eventsOf(data, outcome))} />
                </td>
                <td className={cell.number}>{outcome !== "accepted" && <span className="muted">{percentOf(eventsOf(data, outcome), data.accepted + data.rejected)}</span>}</td>
                <td className={cell.extra}>
                  <Trend
                    label={`${name}, day by day`}
                    values={each.map((one) => eventsOf(one, outcome))}
                    when={(index) => written(startOfDay(nextDay(today, index + 1 - days), tenant.timezone), tenant.timezone, "day")}
                  />
                </td>
              </tr>
            ))}
          </tbody>
        ) : (
          <LoadingRows columns={columns.length} rows={4} />
        )}
      </Table>
    </section>
  );
}
