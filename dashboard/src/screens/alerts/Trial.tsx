import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { stringify } from "lossless-json";
import { useState } from "react";
import { Refused } from "../../acts/Refused";
import { Verb } from "../../acts/Verb";
import { dryRun, type AlertDefinition } from "../../api/alerts";
import type { Schema } from "../../api/client";
import { LoadingText } from "../../states/Loading";
import { startOfDay, written } from "../../values/instants";
import { useSession } from "../../api/session";
import { cell, Table } from "../../values/Table";
import styles from "./Alerts.module.css";
import { AlertValue } from "./AlertValue";
import { TrialChart } from "./TrialChart";
import { useHiddenCharges } from "./useHiddenCharges";

interface Props {
  definition: AlertDefinition;
  not?: string | undefined;
}

/** Shows on which of the last 30 days an alert would have fired, when the user asks for it. */
export function Trial({ definition, not }: Props) {
  const unnamed = { ...definition, name: "Trial" }; // the name does not change the trial
  const [tried, setTried] = useState<AlertDefinition>();
  const hidden = useHiddenCharges(definition.type);
  const isCurrent = stringify(tried) === stringify(unnamed);
  return (
    <section aria-labelledby="trial" className={styles.trial}>
      <h2 id="trial">The last 30 days</h2>
      <p className="muted">Lists the days on which the alert would have fired, with the prices, plans, quotas and meters of now. Nothing is saved.{definition.type === "quota" && " Reservations are not compared."}</p>
      <div>
        <Verb needs="alerts:write" not={hidden ?? not} onClick={() => setTried(unnamed)}>
          Try the alert
        </Verb>
      </div>
      {tried && isCurrent && <Days definition={tried} />}
    </section>
  );
}

/** Shows how often the alert would have fired, and the firings. At first, the list has at most 50. */
function Days({ definition }: { definition: AlertDefinition }) {
  const { data, error } = useQuery(dryRun(definition));
  const [all, setAll] = useState(false);
  if (error) return <Refused error={error} />;
  if (!data) return <LoadingText />;
  const { customers, data: firings, more, highest } = data;
  const shown = all ? firings : firings.slice(0, rowsAtFirst);
  return (
    <div role="status" className={styles.days}>
      {highest && <TrialChart definition={definition} of={highest} />}
      <p>
        {firings.length === 0 ? "The alert would not have fired." : `The alert would have fired ${firings.length === 1 ? "once" : `${firings.length} times`}.`}{" "}
        <span className="muted">
          {customers} {customers === 1 ? "customer was" : "customers were"} compared{more && ", not all of them"}.
        </span>
      </p>
      {firings.length > 0 && <Firings definition={definition} firings={shown} />}
      {shown.length < firings.length && <Button variant="default" size="xs" onClick={() => setAll(true)}>{`Show all ${firings.length}`}</Button>}
    </div>
  );
}

const rowsAtFirst = 50;

const columns = [{ title: "Day" }, { title: "Customer" }, { title: "Threshold", number: true }, { title: "Value", number: true }];

/** Lists the firings of the trial, each with its day. */
function Firings({ definition, firings }: { definition: AlertDefinition; firings: Schema<"DryRunFiring">[] }) {
  const { timezone } = useSession().tenant;
  return (
    <Table caption="The days on which the alert would have fired" columns={columns}>
      <tbody>
        {firings.map(({ day, customer_external_id, threshold, value }, index) => (
          <tr key={index}>
            <td className="number">{written(startOfDay(day, timezone), timezone, "day")}</td>
            <td>{customer_external_id}</td>
            <td className={cell.number} data-title="threshold">
              <AlertValue of={definition} value={threshold} />
            </td>
            <td className={cell.number} data-title="value">
              <AlertValue of={definition} value={value} />
            </td>
          </tr>
        ))}
      </tbody>
    </Table>
  );
}
