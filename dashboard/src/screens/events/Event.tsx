import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { readEvents } from "../../api/events";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Details } from "./Details";

/** Shows one event at its own address. */
export function Event() {
  const { event } = useParams({ from: "/frame/events/$event" });
  return (
    <>
      <Head where={[<Link to="/events">Events</Link>]} here="One event" title={event} />
      <Allowed to="events:read">
        <Found />
      </Allowed>
    </>
  );
}

/** The maximum number of the customer's events that the search reads, from the timestamp to the next millisecond. */
const most = 1_000;

/** Finds the event by the customer and the timestamp in the address: the API has no search by ID. */
function Found() {
  const { event: id } = useParams({ from: "/frame/events/$event" });
  const { customer = "", at = "" } = useSearch({ from: "/frame/events/$event" });
  const whole = customer !== "" && !Number.isNaN(Date.parse(at));
  const { data, error, refetch } = useQuery({
    queryKey: ["event", id, customer, at],
    queryFn: async ({ signal }) =>
      (await readEvents({ customer, start: at, end: after(at), page_size: most }, signal)).data.find((one) => one.id === id) ?? null,
    enabled: whole,
  });
  if (error) return <Failed what="The event" error={error} retry={() => void refetch()} />;
  if (data) return <Details event={data} alone />;
  if (data === undefined && whole) return <LoadingText />;
  return (
    <Empty title="The event was not found">
      <p>
        The address may be incomplete. It must contain the event's customer and time. <Link to="/events">Events</Link>
      </p>
    </Empty>
  );
}

/** Returns the start of the next millisecond. Dates in a browser are less precise than timestamps of the API. */
const after = (at: string) => new Date(Date.parse(at) + 1).toISOString();
