import { Switch, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Confirm } from "../../acts/Confirm";
import { Form } from "../../acts/Form";
import { useAct } from "../../acts/useAct";
import { answer, api, broken, type Schema } from "../../api/client";
import { useSession } from "../../api/session";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Ago } from "../../values/Ago";
import { Instant } from "../../values/Instant";
import { State } from "../../values/State";
import styles from "./billing.module.css";

/** When customers are synced by themselves. */
export function AutoSync() {
  const { data, error, refetch } = useQuery({
    queryKey: ["auto-sync"],
    queryFn: ({ signal }) => answer(api.GET("/v1/billing/auto-sync", { signal })),
    refetchInterval: 15_000,
  });
  if (error) return <Failed what="Auto-Sync" error={error} retry={() => void refetch()} />;
  if (!data) return <LoadingText />;
  return (
    <>
      <Standing settings={data} />
      <Settings key={JSON.stringify([data.enabled, data.paused, data.schedule])} settings={data} />
      <h2 className={styles.section}>Runs</h2>
      <Runs settings={data} />
    </>
  );
}

function Standing({ settings }: { settings: Schema<"AutoSync"> }) {
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
      {settings.enabled && !settings.applied_at && <span className="muted">the schedule follows as soon as Temporal answers</span>}
    </p>
  );
}

function Settings({ settings }: { settings: Schema<"AutoSync"> }) {
  const { tenant } = useSession();
  const [enabled, setEnabled] = useState(settings.enabled);
  const [paused, setPaused] = useState(settings.paused);
  const [schedule, setSchedule] = useState<string>(settings.schedule);
  const save = useAct(() => answer(api.PUT("/v1/billing/auto-sync", { body: { enabled, paused, schedule } })), { changes: [["auto-sync"]] });
  return (
    <div className={styles.narrow}>
      <Form act={save} needs="billing:write" submit="Save Auto-Sync" onSubmit={() => save.mutate()}>
        <Switch label="Sync customers by themselves" checked={enabled} onChange={(event) => setEnabled(event.currentTarget.checked)} />
        <TextInput
          label="Schedule"
          description={`hourly, daily, a duration such as 15m, or a cron expression of five fields; in ${tenant.timezone}, but for durations`}
          value={schedule}
          error={broken(save.error, "schedule")}
          onChange={(event) => setSchedule(event.currentTarget.value)}
        />
        <Switch label="Pause for now" checked={paused} onChange={(event) => setPaused(event.currentTarget.checked)} />
      </Form>
    </div>
  );
}

function Runs({ settings }: { settings: Schema<"AutoSync"> }) {
  const { workflows_url: workflows } = useSession();
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
            <span className="muted">none is planned</span>
          )}
        </dd>
        <dt>Last</dt>
        <dd>
          {settings.last_runs.length > 0 ? (
            <ul className={styles.times}>
              {settings.last_runs.slice(0, 5).map((run) => (
                <li key={run.workflow_id}>
                  <Instant at={run.started_at} />{" "}
                  {workflows && (
                    <a href={`${workflows}/${encodeURIComponent(run.workflow_id)}`} target="_blank" rel="noreferrer">
                      Run in Temporal
                    </a>
                  )}
                </li>
              ))}
            </ul>
          ) : (
            <span className="muted">none yet</span>
          )}
        </dd>
      </dl>
      <Confirm verb="Run now" thing="Auto-Sync" needs="billing:write" not={settings.enabled ? undefined : "Auto-Sync is off"} act={trigger}>
        Every customer with usage that is not reported is synced now, beside the schedule.
      </Confirm>
    </>
  );
}
