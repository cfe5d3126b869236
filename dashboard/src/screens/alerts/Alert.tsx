import { TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { Confirm } from "../../acts/Confirm";
import { Form } from "../../acts/Form";
import { Refused } from "../../acts/Refused";
import { useAct } from "../../acts/useAct";
import { useEdits } from "../../acts/useEdits";
import { Verb } from "../../acts/Verb";
import { deleteAlert, alert as read, updateAlert, type Alert } from "../../api/alerts";
import { brokenRule, Failure } from "../../api/client";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import styles from "./Alerts.module.css";
import { AlertState } from "./AlertState";
import { storedDefinition, thresholdsOf, wrongTyped } from "./definition";
import { Firings } from "./Firings";
import { NumberFields } from "./NumberFields";
import { Trial } from "./Trial";
import { useHiddenCharges } from "./useHiddenCharges";
import { condition, scopeText } from "./words";

const needs = "alerts:write";

/** Returns the keys of the queries that an updated alert changes. */
const changed = (id: string) => [["alerts"], ["alert", id], ["firings", id]];

/** Shows an alert: its condition, its trial and its firings. */
export function OneAlert() {
  return (
    <Allowed to="alerts:read">
      <Found />
    </Allowed>
  );
}

/** Shows the alert, or that it does not exist. */
function Found() {
  const { alert: id } = useParams({ from: "/frame/alerts/$alert" });
  const { data, error, refetch } = useQuery(read(id));
  if (error instanceof Failure && (error.status === 404 || error.status === 422)) {
    return (
      <Empty title={`There is no alert ${id}`}>
        <Link to="/alerts">All alerts</Link>
      </Empty>
    );
  }
  if (error && !data) return <Failed what="The alert" error={error} retry={() => void refetch()} />;
  if (!data) return <LoadingText />;
  return (
    <>
      <Head where={[<Link to="/alerts">Alerts</Link>]} here={id} title={data.name} action={<Actions alert={data} />}>
        <AlertState of={data} /> · {scopeText(data)}: {condition(data)}
      </Head>
      <Edit alert={data} />
      <Firings alert={data} />
    </>
  );
}

/** Shows the buttons that disable or enable the alert, and delete it. */
function Actions({ alert }: { alert: Alert }) {
  return (
    <div className={styles.actions}>
      <Enabled alert={alert} />
      <Delete alert={alert} />
    </div>
  );
}

/** Shows the button that disables the alert or, if the alert is disabled, enables it. */
function Enabled({ alert: { id, name, enabled } }: { alert: Alert }) {
  const disable = useAct<string>(() => updateAlert(id, { enabled: false }), { changes: changed(id) });
  const enable = useAct(() => updateAlert(id, { enabled: true }), { changes: changed(id) });
  if (enabled) {
    return (
      <Confirm verb="Disable" thing={`alert ${name}`} needs={needs} act={disable} danger>
        The alert does not fire until it is enabled. Its firings stay.
      </Confirm>
    );
  }
  return (
    <>
      <Verb needs={needs} size="xs" label={`Enable alert ${name}`} loading={enable.isPending} onClick={() => enable.mutate()}>
        Enable
      </Verb>
      <Refused error={enable.error} />
    </>
  );
}

/** Shows the button that deletes the alert and its firings. */
function Delete({ alert: { id, name } }: { alert: Alert }) {
  const remove = useAct<string>(() => deleteAlert(id), { changes: [["alerts"]], leads: () => ({ to: "/alerts" }) });
  return (
    <Confirm verb="Delete" thing={`alert ${name}`} needs={needs} act={remove} danger>
      The alert and its firings are deleted. Messages that were already sent stay in the deliveries of webhooks.
    </Confirm>
  );
}

/** Edits the alert's name and thresholds or, of an alert about silence, its minutes. */
function Edit({ alert }: { alert: Alert }) {
  const { id, type } = alert;
  const saved = { name: alert.name, thresholds: alert.thresholds.join("\n"), minutes: String(alert.minutes ?? "") };
  const numbersOf = ({ minutes, thresholds }: typeof saved) => (type === "silence" ? { minutes: Number(minutes) } : { thresholds: thresholdsOf(thresholds) });
  const { typed, change, save } = useEdits(saved, (typed) => updateAlert(id, { name: typed.name, ...numbersOf(typed) }), { changes: changed(id) });
  const hidden = useHiddenCharges(type);
  const isSame = JSON.stringify(typed) === JSON.stringify(saved);
  return (
    <div className={styles.split}>
      <Form act={save} needs={needs} submit="Save the alert" not={hidden ?? (isSame ? "Nothing was changed" : undefined)} onSubmit={save.mutate}>
        <TextInput label="Name" required withAsterisk={false} maxLength={255} autoComplete="off" value={typed.name} error={brokenRule(save.error, "name")} onChange={(event) => change({ name: event.currentTarget.value })} />
        <NumberFields typed={{ ...typed, type }} error={save.error} change={change} />
      </Form>
      <Trial definition={{ ...storedDefinition(alert), ...numbersOf(typed) }} not={wrongTyped({ ...typed, type })} />
    </div>
  );
}
