import { Link } from "@tanstack/react-router";
import { stringify } from "lossless-json";
import type { Schema } from "../../api/client";
import { useSession } from "../../api/session";
import { Quantity } from "../../values/Amount";
import { Identifier } from "../../values/Identifier";
import { Instant } from "../../values/Instant";
import { range } from "../../values/instants";
import styles from "./Events.module.css";

/** Shows the fields of an event and the meters that count it. alone: the event has its own screen. */
export function Details({ event, alone }: { event: Schema<"StoredEvent">; alone?: boolean }) {
  return (
    <dl className={styles.details} data-alone={alone || undefined}>
      <dt>ID</dt>
      <dd>
        <Identifier>{event.id}</Identifier>{" "}
        {!alone && (
          <Link to="/events/$event" params={{ event: event.id }} search={{ customer: event.customer_id, at: event.timestamp }}>
            Address of this event
          </Link>
        )}
      </dd>
      {alone && (
        <>
          <dt>Event type</dt>
          <dd>{event.event_type}</dd>
          <dt>Value</dt>
          <dd>
            <Quantity value={event.value} />
          </dd>
          <dt>Key</dt>
          <dd>{event.idempotency_key === null ? "None" : <Identifier>{event.idempotency_key}</Identifier>}</dd>
        </>
      )}
      <dt>Customer</dt>
      <dd>
        <Link to="/customers" search={{ search: event.customer_id }}>
          {event.customer_id}
        </Link>
      </dd>
      <dt>Timestamp</dt>
      <dd>
        <Instant at={event.timestamp} /> <span className="muted mono">{event.timestamp}</span>
      </dd>
      <dt>Received</dt>
      <dd>
        <Instant at={event.ingested_at} /> <span className="muted mono">{event.ingested_at}</span>
      </dd>
      <dt>Counted by</dt>
      <dd>
        {event.counted_by.length === 0 ? (
          "No meter counts this event."
        ) : (
          <ul>
            {event.counted_by.map((counter) => (
              <li key={counter.meter_slug}>
                <Link to="/meters/$meter/prices" params={{ meter: counter.meter_slug }}>
                  {counter.meter_slug}
                </Link>
                <Period counter={counter} />
              </li>
            ))}
          </ul>
        )}
      </dd>
      <dt>Properties</dt>
      <dd>{Object.keys(event.properties).length === 0 ? "None" : <pre className="mono">{stringify(event.properties, null, 2)}</pre>}</dd>
    </dl>
  );
}

/** Shows the billing period that counts the event. */
function Period({ counter: { period, late } }: { counter: Schema<"EventCounter"> }) {
  const { tenant } = useSession();
  if (!period) return <span className="muted">, in a billing period that does not exist yet: the next sync creates it</span>;
  const written = range(period.start, period.end, tenant.timezone);
  return <>{late ? `, after the period ${written} was closed: late usage` : `, in the period ${written}`}</>;
}
