import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { stringify } from "lossless-json";
import type { Schema } from "../../api/client";
import { meter as read } from "../../api/meters";
import { uncountedEvents } from "../../api/uncountedEvents";
import { Filter } from "../../frame/Filter";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Ago } from "../../values/Ago";
import { Identifier } from "../../values/Identifier";
import { Instant } from "../../values/Instant";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import { propertyAt } from "./counting";
import styles from "./Meters.module.css";
import { uncountedRules } from "./verdicts";

/** Lists the accepted events that the meter could not count, with advice on how to correct them. */
export function UncountedEvents() {
  return (
    <Allowed to="events:read">
      <UncountedTable />
    </Allowed>
  );
}

const choices = [["", "All problems"], ...Object.entries(uncountedRules)] as [string, string][];

/** Lists the events that the meter could not count. */
function UncountedTable() {
  const { meter } = useParams({ from: "/frame/meters/$meter/uncounted-events" });
  const { rule, page } = useSearch({ from: "/frame/meters/$meter/uncounted-events" });
  const { data: { value_property: property = "" } = {} } = useQuery(read(meter));
  const columns = [{ title: "Time" }, { title: "Customer" }, { title: "Problem" }, { title: property || "Properties" }, { title: "Counted by" }, { title: "Received", number: true }];
  const query = useQuery(uncountedEvents(meter, rule, page));
  return (
    <>
      {query.data && query.data.data.length > 0 && <Advice />}
      <div className={styles.filter}>
        <Filter name="rule" label="Problem" options={choices} />
      </div>
      <List what="The uncounted events" columns={columns} query={query} page={page} empty={<None />}>
        {(event) => <Row key={`${event.id} ${event.rule}`} event={event} property={property} />}
      </List>
    </>
  );
}

/** Explains how such events can still be counted. */
function Advice() {
  return (
    <div className={styles.advice}>
      These events of the last 30 days were accepted, and this meter could not count them. The list has at most the first 1,000 events of each hour. Correct the client, then do one of the following:
      <ul>
        <li>
          Skip events with this meter in <em>Counted by</em>: it counts them now. Send each other event again with a usable value, the same timestamp and a new idempotency key. The other meters in <em>Counted by</em> count the second event too: set the values that they read to 0.
        </li>
        <li>If all events to be counted have the value in another property, try and save that value property. The meter then counts the stored events again, and those without the property not any more.</li>
      </ul>
    </div>
  );
}

/** Shows an event, and why the meter could not count it. */
function Row({ event, property }: { event: Schema<"UncountedEvent">; property: string }) {
  const sent = property ? propertyAt(event.properties, property) : event.properties;
  return (
    <tr>
      <td className={cell.main}>
        <Link to="/events/$event" params={{ event: event.id }} search={{ customer: event.customer_id, at: event.timestamp }}>
          <Instant at={event.timestamp} />
        </Link>
      </td>
      <td>
        <Identifier>{event.customer_id}</Identifier>
      </td>
      <td>{uncountedRules[event.rule]}</td>
      <td className="mono small">{sent === undefined ? <span className="muted">none</span> : stringify(sent)}</td>
      <td>{event.counted_by.length === 0 ? <span className="muted">no meter</span> : event.counted_by.map(({ meter_slug }) => meter_slug).join(", ")}</td>
      <td className={cell.number}>
        <Ago at={event.ingested_at} />
      </td>
    </tr>
  );
}

function None() {
  return (
    <Empty title="No such events in the last 30 days">
      <p className="muted">An accepted event that the meter cannot count is listed within about five seconds.</p>
    </Empty>
  );
}
