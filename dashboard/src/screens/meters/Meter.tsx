import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useParams } from "@tanstack/react-router";
import { Confirm } from "../../acts/Confirm";
import { useAct } from "../../acts/useAct";
import { answer, api, Failure, type Schema } from "../../api/client";
import { meter as read } from "../../api/meters";
import { useSession } from "../../api/session";
import { Head } from "../../frame/Head";
import { Tabs } from "../../frame/Tabs";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { counting } from "./counting";
import { MeterState } from "./MeterState";

const tabs = [
  ["/meters/$meter/prices", "Prices"],
  ["/meters/$meter/details", "Details"],
] as const;

const withUncounted = [...tabs, ["/meters/$meter/uncounted-events", "Uncounted events"]] as const;

/** Shows the head and the tabs of the screens about one meter. */
export function Meter() {
  return (
    <Allowed to="meters:read">
      <MeterFrame />
    </Allowed>
  );
}

/** Shows the head and the tabs of the meter, or that the meter does not exist. */
function MeterFrame() {
  const params = useParams({ from: "/frame/meters/$meter" });
  const { permissions } = useSession();
  const { data, error, refetch } = useQuery(read(params.meter));
  if (error instanceof Failure && error.status === 404) {
    return (
      <Empty title={`There is no meter ${params.meter}`}>
        <Link to="/meters">All meters</Link>
      </Empty>
    );
  }
  if (error && !data) return <Failed what="The meter" error={error} retry={() => void refetch()} />;
  // Without a value property, the meter reads the event's own value, which every event has.
  const mayHaveUncounted = Boolean(data?.value_property) && permissions.includes("events:read");
  return (
    <>
      <Head where={[<Link to="/meters">Meters</Link>]} here={params.meter} title={data?.name || params.meter} action={data && <Archive meter={data} />}>
        {data ? (
          <>
            <MeterState meter={data} /> · Events of type <span className="mono">{data.event_type}</span>, {counting(data)}
          </>
        ) : (
          <LoadingText />
        )}
      </Head>
      <Tabs label="About this meter" tabs={mayHaveUncounted ? withUncounted : tabs} params={params} />
      <Outlet />
    </>
  );
}

/** Shows the button that archives the meter or, if the meter is archived, unarchives it. */
function Archive({ meter: { slug, archived_at, status } }: { meter: Schema<"Meter"> }) {
  const sent = (confirm: string) => ({ params: { path: { slug } }, ...(confirm && { body: { confirm } }) });
  const changes = [["meters"], ["meter", slug]];
  const archive = useAct((confirm: string) => answer(api.POST("/v1/meters/{slug}/archive", sent(confirm))), { changes });
  const unarchive = useAct((confirm: string) => answer(api.POST("/v1/meters/{slug}/unarchive", sent(confirm))), { changes });
  if (archived_at) {
    return (
      <Confirm key="unarchive" verb="Unarchive" thing={`meter ${slug}`} needs="meters:write" act={unarchive}>
        The meter counts again, including the events that arrived while it was archived. Their usage is not billed if their billing period closed after they arrived.
      </Confirm>
    );
  }
  const not = status === "backfilling" ? "Its past events are being counted" : undefined;
  return (
    <Confirm key="archive" verb="Archive" thing={`meter ${slug}`} needs="meters:write" not={not} act={archive} danger>
      Lists no longer show the meter, and it counts no further events. Usage that it has counted stays and is billed. If you unarchive it, it also counts the events that arrived in the meantime. Their usage is not billed if their billing period has closed by then.
    </Confirm>
  );
}
