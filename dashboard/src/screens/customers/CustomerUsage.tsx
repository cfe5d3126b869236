import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { answer, api } from "../../api/client";
import { customer as readCustomer } from "../../api/customers";
import { useSession } from "../../api/session";
import type { Range } from "../../api/usage";
import { Filter } from "../../frame/Filter";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { FirstEvent } from "../../states/FirstEvent";
import { LoadingRows } from "../../states/Loading";
import { cell, Table } from "../../values/Table";
import { Usage } from "../../values/Usage";
import styles from "./CustomerUsage.module.css";
import { MeterUsage } from "./MeterUsage";
import { RangeFilter } from "./RangeFilter";
import { instantsOf } from "./ranges";

const here = "/frame/customers/$customer/usage";

/** Shows a customer's usage of each meter in a range, and the usage of one meter in windows. */
export function CustomerUsage() {
  const params = useParams({ from: here });
  const { data: customer } = useQuery(readCustomer(params.customer));
  return (
    <Allowed to="usage:read">
      {customer && (
        <>
          <Ranges />
          <Meters customer={customer.external_id} />
        </>
      )}
    </Allowed>
  );
}

/** Shows the choices of the time range and of the windows. */
function Ranges() {
  return (
    <div className={styles.ranges}>
      <RangeFilter first="This month" />
      <Filter
        name="by"
        label="Windows"
        options={[
          ["", "By day"],
          ["hour", "By hour"],
          ["week", "By week"],
          ["month", "By month"],
        ]}
      />
    </div>
  );
}

const columns = [{ title: "Meter" }, { title: "Usage", number: true }];

/** Lists the meters with usage in the time range. The chosen one has a chart. */
function Meters({ customer }: { customer: string }) {
  const { tenant } = useSession();
  const params = useParams({ from: here });
  const search = useSearch({ from: here });
  const range: Range = instantsOf(search, tenant.timezone, new Date());
  const { data, error, refetch } = useQuery({
    queryKey: ["usage", customer, range],
    queryFn: ({ signal }) => answer(api.GET("/v1/usage/summary", { params: { query: { customer, ...range } }, signal })),
    placeholderData: keepPreviousData,
  });
  if (error) return <Failed what="The usage" error={error} retry={() => void refetch()} />;
  if (data?.length === 0) {
    return (
      <Empty title="No usage yet">
        <p>Usage appears here as soon as a meter counts the customer's events.</p>
        <FirstEvent customer={customer} />
      </Empty>
    );
  }
  const chosen = data?.find((item) => item.meter_slug === search.meter) ?? data?.[0];
  return (
    <div className={styles.split}>
      <section aria-label="Meters">
        <Table caption="Usage of each meter" columns={columns} busy={!data}>
          {data ? (
            <tbody>
              {data.map((item) => (
                <tr key={item.meter_id} className={item === chosen ? styles.chosen : undefined}>
                  <td>
                    <Link to="/customers/$customer/usage" params={params} search={{ ...search, meter: item.meter_slug }} aria-current={item === chosen || undefined}>
                      {item.meter_slug}
                    </Link>
                  </td>
                  <td className={cell.number}>{item.backfilling ? <span className="muted">being counted</span> : <Usage meter={item.meter_slug} value={item.total_usage} />}</td>
                </tr>
              ))}
            </tbody>
          ) : (
            <LoadingRows columns={2} rows={3} />
          )}
        </Table>
      </section>
      {chosen && !chosen.backfilling && <MeterUsage customer={customer} meter={chosen.meter_slug} by={search.by} range={range} />}
    </div>
  );
}
