import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import type { Schema } from "../../api/client";
import { eventCounts, percentOf } from "../../api/eventCounts";
import { useSession } from "../../api/session";
import { Filter } from "../../frame/Filter";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { LoadingRows } from "../../states/Loading";
import { Quantity } from "../../values/Amount";
import { Identifier } from "../../values/Identifier";
import { written } from "../../values/instants";
import { cell, Table } from "../../values/Table";
import { EventTabs } from "./EventTabs";
import styles from "./Events.module.css";
import { reason } from "./reasons";

/** Shows the number of rejected events by reason and by time. The events themselves are not stored. */
export function Rejected() {
  return (
    <>
      <Head title="Events">Events that broke a rule. They are not stored; the response to each request listed them.</Head>
      <EventTabs />
      <Allowed to="events:read">
        <RejectedCounts />
      </Allowed>
    </>
  );
}

const spans = [
  ["", "Last 30 days"],
  ["1", "Today"],
  ["7", "Last 7 days"],
  ["90", "Last 90 days"],
] as const;
const byReason = [{ title: "Reason" }, { title: "What it means" }, { title: "Events", number: true }];
const byTime = [{ title: "When" }, { title: "Reasons" }, { title: "Rejected", number: true }, { title: "Accepted", number: true }];

/** Shows how many events were rejected, by reason and over time. */
function RejectedCounts() {
  const { tenant } = useSession();
  const { days = "30" } = useSearch({ from: "/frame/events/rejected" });
  const asked = spans.some(([value]) => value === days) ? Number(days) : 30;
  const { data, error, refetch } = useQuery(eventCounts(asked, tenant.timezone));
  if (error) return <Failed what="The rejected events" error={error} retry={() => void refetch()} />;
  const windows = data?.windows.filter(({ rejected }) => rejected > 0).reverse() ?? [];
  return (
    <>
      <div className={styles.spans}>
        <Filter name="days" label="Days" options={spans} />
        {data && data.rejected > 0 && (
          <span>
            <Quantity value={String(data.rejected)} /> <span className="muted">rejected, {percentOf(data.rejected, data.accepted + data.rejected)} of all</span>
          </span>
        )}
      </div>
      {data?.rejected === 0 ? (
        <Empty title="No event was rejected">
          <p className="muted">An event that breaks a rule is counted here within five seconds.</p>
        </Empty>
      ) : (
        <>
          <Table caption="Rejected events by reason" columns={byReason} busy={!data}>
            {data ? (
              <tbody>
                {data.rejections.map(({ code, count }) => (
                  <tr key={code}>
                    <td className={cell.main}>
                      <Identifier>{code}</Identifier>
                    </td>
                    <td>{reason(code)}</td>
                    <td className={cell.number} data-title="events">
                      <Quantity value={String(count)} />
                    </td>
                  </tr>
                ))}
              </tbody>
            ) : (
              <LoadingRows columns={byReason.length} rows={3} />
            )}
          </Table>
          {data && <Times windows={windows} byHour={asked === 1} />}
        </>
      )}
    </>
  );
}

/** Shows the rejected events by hour or by day. */
function Times({ windows, byHour }: { windows: Schema<"CountedWindow">[]; byHour: boolean }) {
  const { tenant } = useSession();
  return (
    <>
      <h2 className={styles.section}>{byHour ? "By hour" : "By day"}</h2>
      <Table caption="Rejected events over time" columns={byTime}>
        <tbody>
          {windows.map(({ start, rejections, rejected, accepted }) => (
            <tr key={start}>
              <td className={cell.main}>{written(start, tenant.timezone, byHour ? "minute" : "day")}</td>
              <td>{rejections.map(({ code, count }) => `${code} ${count}`).join(", ")}</td>
              <td className={cell.number} data-title="rejected">
                <Quantity value={String(rejected)} />
              </td>
              <td className={cell.number} data-title="accepted">
                <Quantity value={String(accepted)} />
              </td>
            </tr>
          ))}
        </tbody>
      </Table>
    </>
  );
}
