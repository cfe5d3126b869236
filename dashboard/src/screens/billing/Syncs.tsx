import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { answer, api } from "../../api/client";
import { isOver, type SyncRun } from "../../api/syncs";
import { inWords } from "../../api/words";
import { Filter } from "../../frame/Filter";
import { Empty } from "../../states/Empty";
import { Ago } from "../../values/Ago";
import { CustomerName } from "../../values/CustomerName";
import { Instant } from "../../values/Instant";
import { List } from "../../values/List";
import { State } from "../../values/State";
import { cell } from "../../values/Table";
import styles from "./billing.module.css";
import { syncState, triggers } from "./states";

/** Returns the columns of a list of syncs. The first column has the given title. */
const columns = (of: string) => [{ title: of }, { title: "State" }, { title: "Trigger" }, { title: "Result" }, { title: "Requested", number: true }];

const statuses = [
  ["", "All syncs"],
  ["failed", "Failed"],
  ["running", "Running"],
  ["requested", "Requested"],
  ["succeeded", "Succeeded"],
] as const;

/** Returns the status if a sync can have it, and otherwise undefined. */
const knownStatus = (status: string | undefined) => statuses.map(([value]) => value).find((value) => value !== "" && value === status);

/** Lists the syncs of one customer or all customers, newest first. A sync reports usage to the provider. */
export function Syncs({ customer }: { customer?: string }) {
  const { status, page } = useSearch({ strict: false });
  const chosen = knownStatus(status);
  const query = useQuery({
    queryKey: ["syncs", { customer, status: chosen, page }],
    queryFn: ({ signal }) => {
      const query = { page_size: 25, ...(customer !== undefined && { customer }), ...(chosen && { status: chosen }), ...(page && { page_token: page }) };
      return answer(api.GET("/v1/billing/syncs", { params: { query }, signal }));
    },
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => (state.data?.data.every(isOver) === false ? 2_000 : 15_000),
  });
  return (
    <>
      <div className={styles.filters}>
        <Filter name="status" label="Syncs in the state" options={statuses} />
      </div>
      <List what="The syncs" columns={columns(customer === undefined ? "Customer" : "Sync of")} query={query} page={page} empty={<NoSyncs status={chosen} />}>
        {(run) => <Row key={run.id} run={run} alone={customer !== undefined} />}
      </List>
    </>
  );
}

/** Shows a sync. The list of one customer names each sync by its request time, the list of all by its customer. */
function Row({ run, alone }: { run: SyncRun; alone: boolean }) {
  const [means, state, says] = syncState(run);
  return (
    <tr>
      <td className={cell.main}>
        <Link to="/billing/syncs/$sync" params={{ sync: run.id }}>
          {alone ? <Instant at={run.requested_at} /> : <CustomerName of={run} />}
        </Link>
      </td>
      <td>
        <State is={means} says={says}>{state}</State>
      </td>
      <td className="muted">{triggers[run.trigger]}</td>
      <td className={styles.text}>{inWords(run.error || run.last_error || "") || (run.pause && `Paused: ${run.pause.reason}`)}</td>
      <td className={cell.number}>
        <Ago at={run.requested_at} />
      </td>
    </tr>
  );
}

function NoSyncs({ status }: { status: string | undefined }) {
  return (
    <Empty title={status ? `No sync is ${status}` : "No sync yet"}>
      <p>
        A sync reports a customer's usage to the provider. <Link to="/billing/auto-sync">Auto-Sync</Link> requests syncs automatically; a customer's bill has a button for one.
      </p>
    </Empty>
  );
}
