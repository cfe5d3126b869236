import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { firings, type Alert } from "../../api/alerts";
import { useSession } from "../../api/session";
import { Empty } from "../../states/Empty";
import { Instant } from "../../values/Instant";
import { range } from "../../values/instants";
import { List } from "../../values/List";
import { State } from "../../values/State";
import { cell } from "../../values/Table";
import styles from "./Alerts.module.css";
import { AlertValue } from "./AlertValue";
import { useHiddenCharges } from "./useHiddenCharges";

const columns = [{ title: "Fired" }, { title: "Customer" }, { title: "Threshold", number: true }, { title: "Value", number: true }, { title: "Period" }];

/** Lists the firings of an alert, newest first. */
export function Firings({ alert }: { alert: Alert }) {
  const hidden = useHiddenCharges(alert.type);
  return (
    <section aria-labelledby="firings" className={styles.firings}>
      <h2 id="firings">Firings</h2>
      {hidden ? <p className="muted">{hidden}.</p> : <FiringTable alert={alert} />}
    </section>
  );
}

/** Lists the firings of the alert, which are read again every ten seconds. */
function FiringTable({ alert }: { alert: Alert }) {
  const { tenant } = useSession();
  const { page } = useSearch({ from: "/frame/alerts/$alert" });
  const query = useQuery({ ...firings(alert.id, page), placeholderData: keepPreviousData, refetchInterval: 10_000 });
  return (
    <List what="The firings" columns={columns} query={query} page={page} rows={2} empty={<None />}>
      {({ id, occurred_at, customer_id, customer_external_id, threshold, value, period, late }) => (
        <tr key={id}>
          <td>
            <Instant at={occurred_at} />
          </td>
          <td className={cell.main}>
            <Link to="/customers/$customer/usage" params={{ customer: customer_id }}>
              {customer_external_id}
            </Link>
          </td>
          <td className={cell.number} data-title="threshold">
            <AlertValue of={alert} value={threshold} />
          </td>
          <td className={cell.number} data-title="value">
            <AlertValue of={alert} value={value} />
          </td>
          <td>
            {isLifetime(period.end) ? "in total" : range(period.start, period.end, tenant.timezone)} {late && <State is="waiting">after its end</State>}
          </td>
        </tr>
      )}
    </List>
  );
}

/** Reports whether a period is that of a lifetime quota, which the API ends in the year 9999. */
const isLifetime = (end: string) => end >= "9000";

function None() {
  return (
    <Empty title="No firings">
      <p>No customer has reached a threshold. Firings are kept for 400 days.</p>
    </Empty>
  );
}
