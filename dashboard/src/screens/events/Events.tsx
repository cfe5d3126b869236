import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link, useSearch } from "@tanstack/react-router";
import { Failure, type Schema } from "../../api/client";
import { readEvents } from "../../api/events";
import { useSession } from "../../api/session";
import { Head } from "../../frame/Head";
import { Opener } from "../../frame/Opener";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { FirstEvent } from "../../states/FirstEvent";
import { Quantity } from "../../values/Amount";
import { Ago } from "../../values/Ago";
import { Identifier } from "../../values/Identifier";
import { Instant } from "../../values/Instant";
import { day, nextDay } from "../../values/instants";
import { List } from "../../values/List";
import { State } from "../../values/State";
import { cell } from "../../values/Table";
import { Details } from "./Details";
import { EventTabs } from "./EventTabs";
import { eventQuery, hasTail, isLive, pageSize } from "./filter";
import styles from "./Events.module.css";
import { Search } from "./Search";
import { useTail } from "./useTail";

type StoredEvent = Schema<"StoredEvent">;

/** Lists accepted events: the latest ones as they arrive, or those that match a search. */
export function Events() {
  return (
    <>
      <Head title="Events">Accepted events, newest first. Without dates, the list covers the last 24 hours; with an idempotency key, it covers all events.</Head>
      <EventTabs />
      <Allowed to="events:read">
        <Found />
      </Allowed>
    </>
  );
}

const columns = [{ title: "Event type" }, { title: "Customer" }, { title: "Value", number: true }, { title: "Key" }, { title: "Counted by" }, { title: "When", number: true }];

/** Shows the search, and the events that match it. */
function Found() {
  const { tenant } = useSession();
  const search = useSearch({ from: "/frame/events" });
  const filter = eventQuery(search, tenant.timezone);
  return (
    <>
      <Search />
      <Results key={JSON.stringify(filter)} filter={filter} />
    </>
  );
}

/** Lists the matching events. If the list is live, new events are read every two seconds. */
function Results({ filter }: { filter: ReturnType<typeof eventQuery> }) {
  const search = useSearch({ from: "/frame/events" });
  const live = isLive(search);
  const query = useQuery({
    queryKey: ["events", filter],
    queryFn: ({ signal }) => readEvents(filter, signal),
    refetchInterval: live ? 2_000 : false, // only while the page is visible
  });
  const { shown, fresh, show } = useTail(query.data, search.event);
  if (query.error instanceof Failure && query.error.status === 404) {
    return (
      <Empty title={`There is no customer ${search.customer}`}>
        <p className="muted">The first event that names a customer creates it.</p>
      </Empty>
    );
  }
  const stopped = shown !== undefined && shown.next_page_token !== null && shown.data.length < pageSize;
  const searched = stopped ? shown.searched_until : null;
  return (
    <>
      {hasTail(search) && <Tail live={live} fresh={fresh} show={show} />}
      <List
        what="The events"
        columns={columns}
        query={{ ...query, data: shown }}
        page={search.page}
        empty={<None searched={searched} />}
        further={stopped ? "Search further back" : undefined}
      >
        {(event) => <Row key={event.id} event={event} open={event.id === search.event} />}
      </List>
      {searched && shown && shown.data.length > 0 && (
        <p className="muted small">
          Searched back to <Instant at={searched} />.
        </p>
      )}
    </>
  );
}

/** Shows whether the list is refreshed, a link to pause it, and a button for new events that are not shown yet. */
function Tail({ live, fresh, show }: { live: boolean; fresh: number; show: () => void }) {
  const { paused } = useSearch({ from: "/frame/events" });
  return (
    <p className={styles.tail}>
      <State is={live ? "good" : "off"}>{live ? "refreshed every 2 seconds" : "paused"}</State>
      <Link to="/events" search={({ paused: _, ...search }) => (paused ? search : { ...search, paused: "yes" })} replace resetScroll={false}>
        {live ? "Pause" : "Resume"}
      </Link>
      {fresh > 0 && (
        <Button variant="default" size="compact-sm" onClick={show}>
          {`Show ${fresh === pageSize ? `${pageSize} or more` : fresh} new ${fresh === 1 ? "event" : "events"}`}
        </Button>
      )}
    </p>
  );
}

/** Shows an event and, if it is open, its details. */
function Row({ event, open }: { event: StoredEvent; open: boolean }) {
  return (
    <>
      <tr>
        <td className={cell.main}>
          <Opener name="event" value={event.id} open={open}>
            {event.event_type}
          </Opener>
        </td>
        <td>
          <Identifier>{event.customer_id}</Identifier>
        </td>
        <td className={cell.number}>
          <Quantity value={event.value} />
        </td>
        <td>{event.idempotency_key === null ? <span className="muted">none</span> : <Identifier>{event.idempotency_key}</Identifier>}</td>
        <td>{event.counted_by.length === 0 ? <span className="muted">no meter</span> : event.counted_by.map(({ meter_slug }) => meter_slug).join(", ")}</td>
        <td className={cell.number}>
          <Ago at={event.timestamp} />
        </td>
      </tr>
      {open && (
        <tr>
          <td colSpan={columns.length} className={cell.whole}>
            <Details event={event} />
          </td>
        </tr>
      )}
    </>
  );
}

function None({ searched }: { searched: string | null }) {
  const { customer, type, key, from, until } = useSearch({ from: "/frame/events" });
  if (searched) {
    return (
      <Empty title="No matching event so far">
        <p className="muted">
          Searched back to <Instant at={searched} />. Earlier events may match.
        </p>
      </Empty>
    );
  }
  if (customer || type || key || from || until) {
    return <NoMatch />;
  }
  return (
    <Empty title="No events in the last 24 hours">
      <p>Events appear here within two seconds after they are sent.</p>
      <FirstEvent customer="acme" />
    </Empty>
  );
}

/** Names the searched range. After a search of the last 24 hours, offers searches of wider ranges. */
function NoMatch() {
  const { tenant } = useSession();
  const { key, from, until } = useSearch({ from: "/frame/events" });
  if (from || until) {
    return (
      <Empty title="No matching event in this time range">
        <p className="muted">Rejected events are not stored.</p>
      </Empty>
    );
  }
  if (key) {
    return (
      <Empty title="No event has this key">
        <p className="muted">All stored events were searched. Rejected events are not stored.</p>
      </Empty>
    );
  }
  const today = day(new Date(), tenant.timezone);
  return (
    <Empty title="No matching event in the last 24 hours">
      <p>
        Search the last{" "}
        <Link to="/events" search={(search) => ({ ...search, from: nextDay(today, -30) })}>
          30 days
        </Link>{" "}
        or{" "}
        <Link to="/events" search={(search) => ({ ...search, from: nextDay(today, -365) })}>
          365 days
        </Link>
        .
      </p>
      <p className="muted">Rejected events are not stored.</p>
    </Empty>
  );
}
