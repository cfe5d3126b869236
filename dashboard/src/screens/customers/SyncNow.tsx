import { useQuery, useQueryClient } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { useEffect } from "react";
import { Refused } from "../../acts/Refused";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { isOver, openSync, requestSync, sync as read } from "../../api/syncs";
import { Failed } from "../../states/Failed";
import { Ago } from "../../values/Ago";
import { State } from "../../values/State";
import { Workflows } from "../../values/Workflows";
import { syncState } from "../billing/states";
import styles from "./SyncNow.module.css";
import { step } from "./syncSteps";

/** Requests a sync and shows its progress in place. The sync's id is in the address. Leaving does not stop the sync. */
export function SyncNow({ id, customer }: { id: string; customer: string }) {
  const { sync: asked } = useSearch({ from: "/frame/customers/$customer/bill" });
  const ask = useAct(() => requestSync(customer), {
    changes: [["syncs"]],
    leads: (made) => ({ to: "/customers/$customer/bill", params: { customer: id }, search: (was) => ({ ...was, sync: made.id }), replace: true, resetScroll: false }),
  });
  // The API waits up to 25 seconds for the sync. Until it responds, the list of the customer's syncs has the id.
  const { data: open } = useQuery({ ...openSync(customer), enabled: ask.isPending });
  const shown = ask.isPending ? open : asked;
  return (
    <>
      <Verb needs="billing:write" loading={ask.isPending} onClick={() => ask.mutate()}>
        Sync now
      </Verb>
      <Refused error={ask.error} />
      {shown && <Progress key={shown} customer={customer} id={shown} />}
    </>
  );
}

/** Shows the progress of the sync. Reads the bill again when the sync is over. */
function Progress({ customer, id }: { customer: string; id: string }) {
  const queries = useQueryClient();
  const { data, error, refetch } = useQuery(read(id));
  const done = data && isOver(data);
  useEffect(() => {
    if (!done) return;
    for (const queryKey of [["period", customer], ["preview", customer], ["statement"]]) void queries.invalidateQueries({ queryKey });
  }, [done, customer, queries]);
  if (error) return <Failed what="The sync" error={error} retry={() => void refetch()} />;
  if (!data) return null;
  const [means, state, says] = syncState(data);
  return (
    <div className={styles.progress} role="status">
      <State is={means} says={says}>
        {state}
      </State>
      <span className={styles.step}>{step(data)}</span>
      {data.next_attempt_at && (
        <span className="muted">
          tried again <Ago at={data.next_attempt_at} />
        </span>
      )}
      <span>
        <Link to="/billing/syncs/$sync" params={{ sync: id }}>
          This sync
        </Link>{" "}
        <Workflows of={data.customer_id} />
      </span>
    </div>
  );
}
