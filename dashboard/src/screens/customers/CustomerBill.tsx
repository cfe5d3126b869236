import { useQuery } from "@tanstack/react-query";
import { useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { Refused } from "../../acts/Refused";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { answer, api, type Schema } from "../../api/client";
import { customer as readCustomer } from "../../api/customers";
import { useSession } from "../../api/session";
import { requestSync } from "../../api/syncs";
import { Opener } from "../../frame/Opener";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { LoadingRows, LoadingText } from "../../states/Loading";
import { Amount, Quantity } from "../../values/Amount";
import { decimals, minorDigits, sum } from "../../values/decimal";
import { Instant } from "../../values/Instant";
import { range } from "../../values/instants";
import { State, type Meaning } from "../../values/State";
import { cell, Table } from "../../values/Table";
import styles from "./CustomerBill.module.css";
import { Working } from "./Working";

const here = "/frame/customers/$customer/bill";

/** What the running billing period comes to so far, each line with its working. */
export function CustomerBill() {
  const params = useParams({ from: here });
  const { data: customer } = useQuery(readCustomer(params.customer));
  return (
    <Allowed to="billing:read">
      {customer && (
        <>
          <Period customer={customer.external_id} />
          <Lines customer={customer.external_id} />
        </>
      )}
    </Allowed>
  );
}

const states: Record<Schema<"BillingPeriod">["state"], [Meaning, string]> = {
  open: ["good", "open"],
  in_grace: ["waiting", "over, and takes usage until it closes"],
  closed: ["off", "closed"],
};

function Period({ customer }: { customer: string }) {
  const { tenant } = useSession();
  const { data, error, refetch } = useQuery({
    queryKey: ["period", customer],
    queryFn: ({ signal }) => answer(api.GET("/v1/billing/periods", { params: { query: { customer, page_size: 1 } }, signal })),
  });
  if (error) return <Failed what="The billing period" error={error} retry={() => void refetch()} />;
  const period = data?.data[0];
  return (
    <div className={styles.period}>
      {period ? (
        <>
          <span className={styles.range}>{range(period.start, period.end, tenant.timezone)}</span>
          <State is={states[period.state][0]}>{states[period.state][1]}</State>
          <span className="muted">
            closes <Instant at={period.due_at} />
          </span>
        </>
      ) : (
        !data && <LoadingText />
      )}
      <SyncNow customer={customer} />
    </div>
  );
}

/** Asks for a sync and leads to it, where one sees how it goes on. */
function SyncNow({ customer }: { customer: string }) {
  const navigate = useNavigate();
  const ask = useAct(() => requestSync(customer), {
    changes: [["syncs"], ["period", customer], ["preview", customer]],
    done: ({ id }) => void navigate({ to: "/billing/syncs/$sync", params: { sync: id } }),
  });
  return (
    <>
      <Verb needs="billing:write" loading={ask.isPending} onClick={() => ask.mutate()}>
        Sync now
      </Verb>
      <Refused error={ask.error} />
    </>
  );
}

const columns = [{ title: "Meter" }, { title: "Usage", number: true }, { title: "Rate", number: true }, { title: "Amount", number: true }];

function Lines({ customer }: { customer: string }) {
  const { meter } = useSearch({ from: here });
  const { data, error, refetch } = useQuery({
    queryKey: ["preview", customer],
    queryFn: ({ signal }) => answer(api.GET("/v1/billing/preview", { params: { query: { customer } }, signal })),
  });
  if (error) return <Failed what="The bill" error={error} retry={() => void refetch()} />;
  if (data?.length === 0) {
    return (
      <Empty title="Nothing is billed yet">
        <p>A line is here for each meter, with what its usage comes to at its price.</p>
      </Empty>
    );
  }
  return (
    <Table caption="What this period comes to so far" columns={columns} busy={!data}>
      {data ? (
        <>
          <tbody>
            {data.map((line, index) => (
              <Line key={index} customer={customer} line={line} open={meter === line.meter_slug && !line.late_for} />
            ))}
          </tbody>
          <tfoot>
            {totals(data).map(({ currency, amount }) => (
              <tr key={currency}>
                <td colSpan={3}>{decimals(amount) > minorDigits(currency) ? "Total so far, before lines are rounded" : "Total so far"}</td>
                <td className={cell.number}>
                  <Amount value={amount} currency={currency} />
                </td>
              </tr>
            ))}
          </tfoot>
        </>
      ) : (
        <LoadingRows columns={4} rows={3} />
      )}
    </Table>
  );
}

function Line({ customer, line, open }: { customer: string; line: Schema<"PreviewItem">; open: boolean }) {
  const { tenant } = useSession();
  return (
    <>
      <tr>
        <td className={styles.meter}>
          {line.late_for ? (
            <>
              {line.meter_slug} <span className="muted small">late, for {range(line.late_for.start, line.late_for.end, tenant.timezone)}</span>
            </>
          ) : (
            <Opener name="meter" value={line.meter_slug} open={open}>
              {line.meter_slug}
            </Opener>
          )}
          {line.excluded && <p className={styles.excluded}>Not reported: {line.excluded}</p>}
        </td>
        <td className={cell.number} data-title="usage">
          {line.backfilling ? <span className="muted">being counted</span> : <Quantity value={line.usage} />}
        </td>
        <td className={cell.number} data-title="rate">
          <Quantity value={line.unit_price} />
        </td>
        <td className={cell.number}>
          <Amount value={line.amount} currency={line.currency} />
        </td>
      </tr>
      {open && (
        <tr className={styles.opened}>
          <td colSpan={4}>
            <Working customer={customer} meter={line.meter_slug} />
          </td>
        </tr>
      )}
    </>
  );
}

function totals(lines: Schema<"PreviewItem">[]): { currency: string; amount: string }[] {
  const byCurrency = Map.groupBy(lines, (line) => line.currency);
  return [...byCurrency].map(([currency, of]) => ({ currency, amount: sum(of.map((line) => line.amount)) }));
}
