import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { Confirm } from "../../acts/Confirm";
import { Refused } from "../../acts/Refused";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import { answer, api, type Schema } from "../../api/client";
import { customerLabel } from "../../api/customers";
import { useSession } from "../../api/session";
import { isOver, requestSync, sync as read, type SyncRun } from "../../api/syncs";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { inWords } from "../../api/words";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Actor } from "../../values/Actor";
import { Ago } from "../../values/Ago";
import { Amount } from "../../values/Amount";
import { CustomerName } from "../../values/CustomerName";
import { Identifier } from "../../values/Identifier";
import { range } from "../../values/instants";
import { Reason } from "../../values/Reason";
import { State } from "../../values/State";
import { cell, Table } from "../../values/Table";
import { Usage } from "../../values/Usage";
import { Workflows } from "../../values/Workflows";
import styles from "./billing.module.css";
import { reportStates, syncState, triggers } from "./states";

/** Shows one sync: its reports, the reason why it waits, and the actions of an operator. */
export function Sync() {
  return (
    <Allowed to="billing:read">
      <Run />
    </Allowed>
  );
}

/** Shows the sync that the address names. */
function Run() {
  const params = useParams({ from: "/frame/billing/syncs/$sync" });
  const { data, error, refetch } = useQuery(read(params.sync));
  if (error && !data) return <Failed what="The sync" error={error} retry={() => void refetch()} />;
  return (
    <>
      <Head
        where={[<Link to="/billing">Billing</Link>, <Link to="/billing/syncs">Syncs</Link>]}
        here={params.sync}
        title={data ? `Sync of ${customerLabel(data)}` : "Sync"}
        action={data && (isOver(data) ? data.status === "failed" && <Again run={data} /> : <Steering run={data} />)}
      />
      {data ? <Facts run={data} /> : <LoadingText />}
      {data && data.lines.length > 0 && <Lines lines={data.lines} />}
      {data && data.excluded.length > 0 && <Excluded excluded={data.excluded} />}
      {data && isOver(data) && data.lines.length === 0 && data.excluded.length === 0 && data.error === "" && (
        <p className="muted">There was nothing new to report.</p>
      )}
    </>
  );
}

/** Shows the state of the sync, its error and its times. */
function Facts({ run }: { run: SyncRun }) {
  const [means, state, says] = syncState(run);
  return (
    <dl className={styles.facts} data-state={run.status}>
      <dt>State</dt>
      <dd>
        <State is={means} says={says}>{state}</State>
      </dd>
      {run.error && (
        <>
          <dt>What to do</dt>
          <dd>{inWords(run.error)}</dd>
        </>
      )}
      {run.last_error && (
        <>
          <dt>Last error</dt>
          <dd>{inWords(run.last_error)}</dd>
        </>
      )}
      {run.attempts !== undefined && run.attempts > 0 && (
        <>
          <dt>Attempts</dt>
          <dd>
            {run.attempts}
            {run.next_attempt_at && (
              <>
                , the next <Ago at={run.next_attempt_at} />
              </>
            )}
          </dd>
        </>
      )}
      {run.pause && (
        <>
          <dt>Paused</dt>
          <dd>
            {run.pause.reason} <span className="muted">by</span> <Actor is={run.pause.by} /> <Ago at={run.pause.since} />
          </dd>
        </>
      )}
      <dt>Requested</dt>
      <dd>
        <Ago at={run.requested_at} /> <span className="muted">because {triggers[run.trigger]}</span>
      </dd>
      {run.finished_at && (
        <>
          <dt>Finished</dt>
          <dd>
            <Ago at={run.finished_at} />
          </dd>
        </>
      )}
      <dt>Customer</dt>
      <dd>
        <Link to="/customers/$customer/bill" params={{ customer: run.customer_id }}>
          <CustomerName of={run} />
        </Link>{" "}
        <Workflows of={run.customer_id} />
      </dd>
      <dt>Sync</dt>
      <dd>
        <Identifier>{run.id}</Identifier>
      </dd>
    </dl>
  );
}

/** Requests another sync after one that ended before everything was reported, and opens the new sync. */
function Again({ run: { external_id: customer } }: { run: SyncRun }) {
  const again = useAct(() => requestSync(customer), {
    changes: [["syncs"], ["needs"]],
    leads: ({ id }) => ({ to: "/billing/syncs/$sync", params: { sync: id } }),
  });
  return (
    <>
      <Verb needs="billing:write" loading={again.isPending} onClick={() => again.mutate()}>
        Sync again
      </Verb>
      <Refused error={again.error} />
    </>
  );
}

/** Offers the actions on an open sync. Each applies to all open syncs of the customer: one run performs these syncs. */
function Steering({ run }: { run: SyncRun }) {
  const changes = [["sync", run.id], ["syncs"]];
  const body = (reason: string) => ({ params: { path: { id: run.id } }, body: { reason } });
  const retry = useAct((reason: string) => answer(api.POST("/v1/billing/syncs/{id}/retry", body(reason))), { changes });
  const pause = useAct((reason: string) => answer(api.POST("/v1/billing/syncs/{id}/pause", body(reason))), { changes });
  const resume = useAct((reason: string) => answer(api.POST("/v1/billing/syncs/{id}/resume", body(reason))), { changes });
  const cancel = useAct((reason: string) => answer(api.POST("/v1/billing/syncs/{id}/cancel", body(reason))), { changes });
  const common = { needs: "billing:write", thing: `the sync of ${customerLabel(run)}`, asks: "Reason, for the audit log" };
  return (
    <>
      {!run.paused && (
        <Confirm {...common} verb="Retry" act={retry}>
          The waiting report is sent now.
        </Confirm>
      )}
      {run.paused ? (
        <Confirm key="resume" {...common} verb="Resume" act={resume}>
          The sync continues with the reports that are still to be sent.
        </Confirm>
      ) : (
        <Confirm key="pause" {...common} verb="Pause" act={pause}>
          No usage of this customer is reported until the customer is resumed. Usage is still counted.
        </Confirm>
      )}
      <Confirm {...common} verb="Cancel" act={cancel} danger>
        The sync ends as failed. Accepted reports stay accepted; the next sync reports the remaining usage.
      </Confirm>
    </>
  );
}

const lineColumns = [{ title: "Meter" }, { title: "Period" }, { title: "Report" }, { title: "Usage", number: true }, { title: "Amount", number: true }];

/** Lists the reported lines. */
function Lines({ lines }: { lines: Schema<"SyncLine">[] }) {
  const { tenant } = useSession();
  return (
    <section>
      <h2 className={styles.section}>Reported</h2>
      <Table caption="Reported lines" columns={lineColumns}>
        <tbody>
          {lines.map((line, index) => {
            const [means, state, says] = reportStates[line.state];
            return (
              <tr key={index}>
                <td className={cell.main}>
                  {line.meter_slug}
                  {line.component === "adjustment" && <span className="muted small"> late usage</span>}
                </td>
                <td className="number">{range(line.period.start, line.period.end, tenant.timezone)}</td>
                <td className={styles.text}>
                  <State is={means} says={says}>{state}</State>
                  {line.response && <p className="muted small">{line.response}</p>}
                </td>
                <td className={cell.number} data-title="usage">
                  <Usage meter={line.meter_slug} value={line.usage} />
                </td>
                <td className={cell.number}>
                  <Amount value={line.amount} currency={line.currency} />
                </td>
              </tr>
            );
          })}
        </tbody>
      </Table>
    </section>
  );
}

/** Lists the meters that the sync does not report, each with the reason. */
function Excluded({ excluded }: { excluded: Schema<"ExcludedMeter">[] }) {
  return (
    <section>
      <h2 className={styles.section}>Excluded</h2>
      <Table caption="Excluded meters" columns={[{ title: "Meter" }, { title: "Why" }]}>
        <tbody>
          {excluded.map((meter) => (
            <tr key={meter.meter_id}>
              <td className={cell.main}>{meter.meter_slug}</td>
              <td className={styles.text}>
                <Reason of={meter} />
              </td>
            </tr>
          ))}
        </tbody>
      </Table>
    </section>
  );
}
