import { Button } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { stringify } from "lossless-json";
import { Fragment, useState } from "react";
import { Refused } from "../../acts/Refused";
import { useAct } from "../../acts/useAct";
import { Verb } from "../../acts/Verb";
import type { Schema } from "../../api/client";
import type { Definition } from "../../api/meters";
import { Quantity } from "../../values/Amount";
import { Instant } from "../../values/Instant";
import { State } from "../../values/State";
import { cell, Table } from "../../values/Table";
import { groupText } from "../../values/groups";
import { verdicts } from "./verdicts";
import styles from "./TryOut.module.css";

type Preview = Schema<"MeterPreview">;

/** Returns the preview of a definition. The preview is outdated as soon as the user changes the definition. */
export function useTryOut<Body extends Definition>(body: Body, preview: (body: Body) => Promise<Preview>) {
  const { data, error, variables, isPending, mutate, reset } = useAct(preview, { changes: [] });
  const outdated = stringify(variables) !== stringify(body);
  return {
    data,
    outdated,
    aggregation: variables?.aggregation,
    error,
    /** The error to show at the fields. Null once the definition changes, because the change may correct it. */
    fieldError: outdated ? null : error,
    isPending,
    start: () => mutate(body),
    reset,
  };
}

interface Props {
  attempt: ReturnType<typeof useTryOut<never>>;
  unit: string;
  not?: string | undefined;
  /** The callback before each preview. */
  begin: () => void;
}

/** Shows the count of the latest events by the typed definition, at the user's request. */
export function TryOut({ attempt: { data, outdated, aggregation, error, isPending, start }, unit, not, begin }: Props) {
  const run = () => {
    begin();
    start();
  };
  return (
    <section aria-labelledby="try" className={styles.panel}>
      <h2 id="try">Try it</h2>
      <p className="muted">Count the latest 100 events of the type by this definition. Nothing is saved.</p>
      <div>
        <Verb needs="events:read" not={not} loading={isPending} onClick={run}>
          Try it on the latest 100 events
        </Verb>
      </div>
      <Refused error={error} />
      <div role="status">{data && (outdated ? "The definition has changed since. Try it again." : <Totals preview={data} unit={unit} />)}</div>
      {data && data.sample.length > 0 && <Sample preview={data} outdated={outdated} summed={aggregation === "sum"} />}
    </section>
  );
}

/** Shows how many of the recent events the definition counts, and their usage. */
function Totals({ preview, unit }: { preview: Preview; unit: string }) {
  const { events_read: events, counted, value, current_value: current, uncounted, period } = preview;
  if (events === 0) return <p>No event of this type was found. Older events may exist that the search did not reach.</p>;
  return (
    <dl className={styles.totals}>
      <dt>Counted</dt>
      <dd>
        {counted} of {events} events
      </dd>
      {uncounted.map(({ code, count }) => (
        <Fragment key={code}>
          <dt>{verdicts[code] ?? code}</dt>
          <dd>{count}</dd>
        </Fragment>
      ))}
      {current !== undefined && (
        <>
          <dt>Total now</dt>
          <dd>
            <Quantity value={current} unit={unit} />
          </dd>
        </>
      )}
      <dt>{current === undefined ? "Total" : "Total then"}</dt>
      <dd className={styles.total}>
        <Quantity value={value} unit={unit} />
      </dd>
      <dt>Since</dt>
      <dd>
        <Instant at={period.start} />
      </dd>
    </dl>
  );
}

const columns = [{ title: "Event" }, { title: "Counted" }];
const withValue = [...columns, { title: "Value", number: true }];
const rowsAtFirst = 10;

/** Lists the events that a preview read. Their values are shown only if the meter adds them up. */
function Sample({ preview: { sample }, outdated, summed }: { preview: Preview; outdated: boolean; summed: boolean }) {
  const [all, setAll] = useState(false);
  const shown = all ? sample : sample.slice(0, rowsAtFirst);
  return (
    <div className={styles.sample} data-outdated={outdated || undefined}>
      <Table caption="The events, the latest first" columns={summed ? withValue : columns}>
        <tbody>
          {shown.map((event) => (
            <Row key={event.id} event={event} summed={summed} />
          ))}
        </tbody>
      </Table>
      {shown.length < sample.length && (
        <Button className={styles.more} variant="default" size="xs" onClick={() => setAll(true)}>{`Show all ${sample.length} events`}</Button>
      )}
    </div>
  );
}

/** Shows an event, and how the definition counts it. */
function Row({ event: { id, customer_id: customer, timestamp, rule, property, value, group_key: group }, summed }: { event: Preview["sample"][number]; summed: boolean }) {
  const under = property ?? (group && Object.keys(group).length > 0 ? groupText(group) : "");
  return (
    <tr>
      <td>
        <Link to="/events/$event" params={{ event: id }} search={{ customer, at: timestamp }} target="_blank">
          <Instant at={timestamp} />
        </Link>
        <div className="muted small">{customer}</div>
      </td>
      <td>
        <State is={rule === "counted" ? "good" : "off"}>{verdicts[rule] ?? rule}</State>
        {under && <div className="muted small">{under}</div>}
      </td>
      {summed && <td className={cell.number}>{value !== undefined && <Quantity value={value} />}</td>}
    </tr>
  );
}
