import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import type { Schema } from "../../api/client";
import { customer as readCustomer } from "../../api/customers";
import { periods } from "../../api/periods";
import { useSession } from "../../api/session";
import { Filter } from "../../frame/Filter";
import { Allowed } from "../../states/Allowed";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Instant } from "../../values/Instant";
import { range } from "../../values/instants";
import { State } from "../../values/State";
import { periodStates } from "../billing/states";
import styles from "./CustomerBill.module.css";
import { Preview } from "./Preview";
import { Reports } from "./Reports";
import { StatementLines } from "./StatementLines";
import { SyncNow } from "./SyncNow";

const here = "/frame/customers/$customer/bill";

/** Shows the charges of a billing period, the breakdown of each line, and the period's reports. */
export function CustomerBill() {
  const params = useParams({ from: here });
  const { data: customer } = useQuery(readCustomer(params.customer));
  return <Allowed to="billing:read">{customer && <Bill customer={customer} />}</Allowed>;
}

type Period = Schema<"BillingPeriod">;

/** Shows the billing period of the address: the statement of an ended period, or the preview of the running one. */
function Bill({ customer: { id, external_id: customer } }: { customer: Schema<"Customer"> }) {
  const { period: asked } = useSearch({ from: here });
  const { data, error, refetch } = useQuery(periods(customer));
  if (error && !data) return <Failed what="The billing periods" error={error} retry={() => void refetch()} />;
  const running = data?.data[0];
  const chosen = data?.data.find((period) => period.id !== null && period.id === asked) ?? running;
  const ended = chosen !== running && chosen?.id; // the id of an ended period: its statement has the charges
  return (
    <>
      <div className={styles.period}>
        {chosen ? <Head period={chosen} /> : !data && <LoadingText />}
        {data && <Choice periods={data.data} />}
        {chosen?.id && (
          <Link to="/customers/$customer/statements/$period" params={{ customer: id, period: chosen.id }}>
            Statement to print
          </Link>
        )}
        {chosen === running && <SyncNow id={id} customer={customer} />}
      </div>
      {ended ? <StatementLines period={ended} /> : <Preview customer={customer} />}
      {chosen?.id && <Reports period={chosen.id} />}
    </>
  );
}

/** Shows the dates and the state of the billing period. */
function Head({ period }: { period: Period }) {
  const { tenant } = useSession();
  const [means, state, says] = periodStates[period.state];
  return (
    <>
      <span className={styles.range}>{range(period.start, period.end, tenant.timezone)}</span>
      <State is={means} says={says}>{state}</State>
      <span className="muted">
        {period.closed_at ? "since " : "closes "}
        <Instant at={period.closed_at ?? period.due_at} />
      </span>
    </>
  );
}

/** Asks for the period to show. A period that is not stored yet has no id, and so no statement. */
function Choice({ periods: [running, ...earlier] }: { periods: Period[] }) {
  const { tenant } = useSession();
  const stored = earlier.filter((period): period is Period & { id: string } => period.id !== null);
  if (!running || stored.length === 0) return null;
  const name = (period: Period) => range(period.start, period.end, tenant.timezone);
  return <Filter name="period" label="Billing period" options={[["", name(running)], ...stored.map((period) => [period.id, name(period)] as const)]} />;
}
