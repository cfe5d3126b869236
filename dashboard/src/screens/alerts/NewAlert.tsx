import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { Form } from "../../acts/Form";
import { useAct } from "../../acts/useAct";
import { createAlert } from "../../api/alerts";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { AlertFields } from "./AlertFields";
import styles from "./Alerts.module.css";
import { definitionOf, empty, wrongTyped, type Typed } from "./definition";
import { Trial } from "./Trial";
import { useHiddenCharges } from "./useHiddenCharges";

/** Creates an alert. */
export function NewAlert() {
  return (
    <>
      <Head where={[<Link to="/alerts">Alerts</Link>]} title="Create an alert">
        An alert fires at once if a threshold is already reached.
      </Head>
      <Allowed to="alerts:write">
        <Fields />
      </Allowed>
    </>
  );
}

/** Shows the form of a new alert. */
function Fields() {
  const [typed, setTyped] = useState<Typed>(empty);
  const definition = definitionOf(typed);
  const hidden = useHiddenCharges(typed.type);
  const create = useAct(() => createAlert(definition), {
    changes: [["alerts"]],
    leads: ({ id }) => ({ to: "/alerts/$alert", params: { alert: id } }),
  });
  return (
    <div className={styles.split}>
      <Form act={create} needs="alerts:write" submit="Create the alert" not={hidden} onSubmit={() => create.mutate()}>
        <AlertFields typed={typed} error={create.error} change={(part) => setTyped({ ...typed, ...part })} />
      </Form>
      <Trial definition={definition} not={missing(typed)} />
    </div>
  );
}

/** Returns the first step that the user must take before a trial, if any. */
function missing(typed: Typed): string | undefined {
  const { type, scope, customer, plan, meter, thresholds } = typed;
  if (scope === "customer" && customer === "") return "Enter the customer first";
  if (scope === "plan" && plan === "") return "Choose a plan first";
  if (type === "usage" && meter === "") return "Choose a meter first";
  if (type !== "silence" && thresholds.trim() === "") return "Enter a threshold first";
  return wrongTyped(typed);
}
