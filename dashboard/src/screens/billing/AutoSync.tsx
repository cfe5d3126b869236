import { Switch, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Confirm } from "../../acts/Confirm";
import { Form } from "../../acts/Form";
import { useAct } from "../../acts/useAct";
import { useEdits } from "../../acts/useEdits";
import { answer, api, brokenRule, type Schema } from "../../api/client";
import { useSession } from "../../api/session";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Ago } from "../../values/Ago";
import { Instant } from "../../values/Instant";
import { Quantity } from "../../values/Amount";
import { State } from "../../values/State";
import { cell, Table } from "../../values/Table";
import styles from "./billing.module.css";
import type { StateText } from "./states";

/** Shows and changes the schedule on which customers are synced automatically, and shows its runs. */
export function AutoSync() {
  const { data, error, refetch } = useQuery({
    queryKey: ["auto-sync"],
    queryFn: ({ signal }) => answer(api.GET("/v1/billing/auto-sync", { signal })),
    refetchInterval: 15_000,
  });
  if (error && !data) return <Failed what="Auto-Sync" error={error} retry={() => void refetch()} />;
  if (!data) return <LoadingText />;
  return (
    <>
      <AutoSyncState settings={data} />
      <Settings settings={data} />
      <h2 className={styles.section}>Runs</h2>
      <Runs settings={data} />
    </>
  );
}

/** Shows whether Auto-Sync is on, and when it runs next. */
function AutoSyncState({ settings }: { settings: Schema<"AutoSync"> }) {
  const [next] = settings.next_runs ?? [];
  return (
    <p className={styles.standing}>
      {!settings.enabled ? (
        <State is="off">off</State>
      ) : settings.paused ? (
        <State is="waiting">paused</State>
      ) : (
        <State is="good">on</State>
      )}{" "}
      {settings.enabled && !settings.paused && next && (
        <span className="muted">
          the next run <Ago at={next} />
        </span>
      )}
      {settings.enabled && !settings.applied_at && <span className="muted">the schedule is updated as soon as Temporal responds</span>}
    </p>
  );
}

/** Edits the settings of Auto-Sync. */
function Settings({ settings: { enabled, paused, schedule } }: { settings: Schema<"AutoSync"> }) {
  const { tenant } = useSession();
  const { typed, change, save } = useEdits({ enabled, paused, schedule }, (body) => answer(api.PUT("/v1/billing/auto-sync", { body })), { changes: [["auto-sync"]] });
  return (
    <div className={styles.narrow}>
      <Form act={save} needs="billing:write" submit="Save Auto-Sync" onSubmit={() => save.mutate()}>
        <Switch label="Sync automatically" checked={typed.enabled} onChange={(event) => change({ enabled: event.currentTarget.checked })} />
        <TextInput
          label="Schedule"
          description={`hourly, daily, a duration such as 15m, or a cron expression of five fields; all except durations are in ${tenant.timezone}`}
          value={typed.schedule}
          error={brokenRule(save.error, "schedule")}
          onChange={(event) => change({ schedule: event.currentTarget.value })}
        />
        <Switch label="Pause the schedule" checked={typed.paused} onChange={(event) => change({ paused: event.currentTarget.checked })} />
      </Form>
    </div>
  );
}

const columns = [
  { title: "Started" },
  { title: "State" },
  { title: "Customers", number: true },
  { title: "Reports sent", number: true },
  { title: "Synced separately", number: true },
  { title: "Periods closed", number: true },
  { title: "Run", unseen: true },
];

const runStates: Record<"running" | "succeeded" | "failed", StateText> = {
  running: ["waiting", "running", "The run syncs the customers with unreported usage."],
  succeeded: ["good", "succeeded", "The run is complete. Customers whose sync failed have a failed sync in the list of syncs."],
  failed: ["bad", "failed", "The run failed, or an operator ended it. The next run syncs the remaining customers."],
};

/** Shows a run, its state and its result. */
function RunRow({ run: { started_at, status, outcome, workflow_id } }: { run: Schema<"AutoSyncRun"> }) {
  const { workflows_url: workflows } = useSession();
  const [means, state, says] = status && status !== "requested" ? runStates[status] : (["off", "unknown", "Temporal does not report a state for the run."] as const);
  const counts: [number | undefined, string][] = [
    [outcome?.customers, "customers"],
    [outcome?.reports, "reports"],
    [outcome && outcome.failed + outcome.busy, "separately"],
    [outcome?.closed, "closed"],
  ];
  return (
    <tr>
      <td className={cell.main}>
        <Instant at={started_at} />
      </td>
      <td>
        <State is={means} says={says}>
          {state}
        </State>
      </td>
      {counts.map(([count, title]) => (
        <td key={title} className={cell.number} data-title={count === undefined ? undefined : title}>
          {count !== undefined && <Quantity value={String(count)} />}
        </td>
      ))}
      <td className={cell.number}>
        {workflows && (
          <a href={`${workflows}/${encodeURIComponent(workflow_id)}`} target="_blank" rel="noreferrer" aria-label={`Run of ${started_at} in Temporal`}>
            In Temporal
          </a>
        )}
      </td>
    </tr>
  );
}

/** Shows the next and the latest runs, and the button that starts a run now. */
function Runs({ settings }: { settings: Schema<"AutoSync"> }) {
  const trigger = useAct((_: string) => answer(api.POST("/v1/billing/auto-sync/trigger")), { changes: [["auto-sync"], ["syncs"]] });
  return (
    <>
      <dl className={styles.facts}>
        <dt>Next</dt>
        <dd>
          {settings.next_runs?.length ? (
            <ul className={styles.times}>
              {settings.next_runs.slice(0, 5).map((at) => (
                <li key={at}>
                  <Instant at={at} />
                </li>
              ))}
            </ul>
          ) : (
            <span className="muted">no run is planned</span>
          )}
        </dd>
      </dl>
      {settings.last_runs.length > 0 ? (
        <Table caption="Latest runs" columns={columns}>
          <tbody>
            {settings.last_runs.map((run) => (
              <RunRow key={run.workflow_id} run={run} />
            ))}
          </tbody>
        </Table>
      ) : (
        <p className="muted">No run has started yet.</p>
      )}
      <div className={styles.after}>
        <Confirm verb="Run now" thing="Auto-Sync" needs="billing:write" not={settings.enabled ? undefined : "Auto-Sync is off"} act={trigger}>
          Every customer with unreported usage is synced now, in addition to the schedule.
        </Confirm>
      </div>
    </>
  );
}
