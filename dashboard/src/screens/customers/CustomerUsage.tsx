import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { answer, api, type Schema } from "../../api/client";
import { customer as readCustomer } from "../../api/customers";
import { useSession } from "../../api/session";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { LoadingRows } from "../../states/Loading";
import { Quantity } from "../../values/Amount";
import { shares, sum } from "../../values/decimal";
import { Instant } from "../../values/Instant";
import { range } from "../../values/instants";
import { cell, Table } from "../../values/Table";
import styles from "./CustomerUsage.module.css";
import { FirstEvent } from "../../states/FirstEvent";

const here = "/frame/customers/$customer/usage";

/** What a customer has used in the running billing period, meter by meter, and one meter day by day. */
export function CustomerUsage() {
  const params = useParams({ from: here });
  const { data: customer } = useQuery(readCustomer(params.customer));
  return <Allowed to="usage:read">{customer && <Meters customer={customer.external_id} />}</Allowed>;
}

const columns = [{ title: "Meter" }, { title: "Usage of this period", number: true }];

function Meters({ customer }: { customer: string }) {
  const params = useParams({ from: here });
  const { meter } = useSearch({ from: here });
  const { data, error, refetch } = useQuery({
    queryKey: ["usage", customer],
    queryFn: ({ signal }) => answer(api.GET("/v1/usage/summary", { params: { query: { customer } }, signal })),
  });
  if (error) return <Failed what="The usage" error={error} retry={() => void refetch()} />;
  if (data?.length === 0) {
    return (
      <Empty title="Nothing is metered yet">
        <p>Usage is here as soon as there is a meter for the events that come.</p>
        <FirstEvent customer={customer} />
      </Empty>
    );
  }
  const chosen = data?.find((item) => item.meter_slug === meter) ?? data?.[0];
  return (
    <div className={styles.split}>
      <section aria-label="Meters">
        <Table caption="Usage of each meter" columns={columns} busy={!data}>
          {data ? (
            <tbody>
              {data.map((item) => (
                <tr key={item.meter_id} className={item === chosen ? styles.chosen : undefined}>
                  <td>
                    <Link to="/customers/$customer/usage" params={params} search={{ meter: item.meter_slug }} aria-current={item === chosen || undefined}>
                      {item.meter_slug}
                    </Link>
                  </td>
                  <td className={cell.number}>{item.backfilling ? <span className="muted">being counted</span> : <Quantity value={item.total_usage} />}</td>
                </tr>
              ))}
            </tbody>
          ) : (
            <LoadingRows columns={2} rows={3} />
          )}
        </Table>
      </section>
      {chosen && !chosen.backfilling && <Days customer={customer} meter={chosen.meter_slug} />}
    </div>
  );
}

const dayColumns = [{ title: "Day" }, { title: "Share of the largest day" }, { title: "Usage", number: true }];

function Days({ customer, meter }: { customer: string; meter: string }) {
  const { tenant } = useSession();
  const { data, error, refetch } = useQuery({
    queryKey: ["usage", customer, meter],
    queryFn: ({ signal }) => {
      const query = { customer, meter, granularity: "day" as const, page_size: 10_000 };
      return answer(api.GET("/v1/usage", { params: { query }, signal }));
    },
  });
  if (error) return <Failed what="The days" error={error} retry={() => void refetch()} />;
  const days = data ? byDay(data) : [];
  const widths = shares(days.map((day) => day.usage));
  return (
    <section aria-label={`Days of ${meter}`}>
      <div className={styles.head}>
        <h2>{meter}</h2>
        <span className="muted">{data && range(data.period.start, data.period.end, tenant.timezone)}</span>
        <span className={styles.total}>{data && <Quantity value={data.total} />}</span>
      </div>
      {data?.has_more && <p className="muted small">The days are of the first 10,000 windows of all groups. The total is of all.</p>}
      {data && days.length === 0 ? (
        <p className="muted">Nothing was used in this period yet.</p>
      ) : (
        <Table caption={`Usage of ${meter} by day`} columns={dayColumns} busy={!data}>
          {data ? (
            <tbody>
              {days.map((day, index) => (
                <tr key={day.start}>
                  <td>
                    <Instant at={day.start} as="day" />
                  </td>
                  <td className={cell.bar} aria-hidden="true">
                    <svg className={styles.bar} width="100%" height="8">
                      <rect width={`${(widths[index] ?? 0) * 100}%`} height="8" rx="1" />
                    </svg>
                  </td>
                  <td className={cell.number}>
                    <Quantity value={day.usage} />
                  </td>
                </tr>
              ))}
            </tbody>
          ) : (
            <LoadingRows columns={3} />
          )}
        </Table>
      )}
    </section>
  );
}

interface Day {
  start: string;
  usage: string;
}

/** The usage of each day, of all groups together, the latest day first. What came late is a day's usage too. */
function byDay(usage: Schema<"UsageResult">): Day[] {
  const parts = Map.groupBy(
    usage.groups.flatMap((group) => group.windows),
    (window) => window.window_start,
  );
  return [...parts]
    .map(([start, windows]) => ({ start, usage: sum(windows.flatMap((window) => [window.value, window.late_value])) }))
    .sort((a, b) => b.start.localeCompare(a.start));
}
