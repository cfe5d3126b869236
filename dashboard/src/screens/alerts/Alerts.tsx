import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { Verb } from "../../acts/Verb";
import { alerts, firings, type Alert } from "../../api/alerts";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { LoadingText } from "../../states/Loading";
import { Ago } from "../../values/Ago";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import { AlertState } from "./AlertState";
import { useHiddenCharges } from "./useHiddenCharges";
import { condition, scopeText } from "./words";

/** Lists the alerts of the tenant with their last firings. */
export function Alerts() {
  const navigate = useNavigate();
  const create = (
    <Verb needs="alerts:write" variant="filled" onClick={() => void navigate({ to: "/alerts/new" })}>
      Create an alert
    </Verb>
  );
  return (
    <>
      <Head title="Alerts" action={create}>
        An alert sends a message to your <Link to="/developers/webhooks">webhooks</Link> when a customer reaches a threshold.
      </Head>
      <Allowed to="alerts:read">
        <AlertTable />
      </Allowed>
    </>
  );
}

const columns = [{ title: "Alert" }, { title: "Condition" }, { title: "Customers" }, { title: "Last firing" }, { title: "State" }];

/** Lists the alerts, each with its last firing. */
function AlertTable() {
  const { page } = useSearch({ from: "/frame/alerts" });
  const query = useQuery({ ...alerts(page), placeholderData: keepPreviousData });
  return (
    <List what="The alerts" columns={columns} query={query} page={page} empty={<None />}>
      {(alert) => (
        <tr key={alert.id}>
          <td className={cell.main}>
            <Link to="/alerts/$alert" params={{ alert: alert.id }}>
              {alert.name}
            </Link>
          </td>
          <td>{condition(alert)}</td>
          <td>{scopeText(alert)}</td>
          <td data-title="last firing">
            <LastFiring alert={alert} />
          </td>
          <td>
            <AlertState of={alert} />
          </td>
        </tr>
      )}
    </List>
  );
}

/** Shows when the alert last fired. */
function LastFiring({ alert: { id, type } }: { alert: Alert }) {
  const hidden = useHiddenCharges(type);
  const { data, error } = useQuery({ ...firings(id, undefined, 1), enabled: !hidden });
  if (hidden) return <span className="muted" title={hidden}>hidden</span>;
  if (error) return <span className="muted">unknown</span>;
  if (!data) return <LoadingText />;
  const [last] = data.data;
  if (!last) return <span className="muted">never</span>;
  return (
    <>
      <Ago at={last.occurred_at} /> <span className="muted">{last.customer_external_id}</span>
    </>
  );
}

function None() {
  return (
    <Empty title="No alerts yet">
      <p>Create an alert, for example, to send a message when a customer's usage reaches 80% of its budget.</p>
    </Empty>
  );
}
