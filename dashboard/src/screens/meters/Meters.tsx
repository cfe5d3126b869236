import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { Verb } from "../../acts/Verb";
import { meters } from "../../api/meters";
import { pricings } from "../../api/prices";
import { useSession } from "../../api/session";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { LoadingText } from "../../states/Loading";
import { Identifier } from "../../values/Identifier";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import { counting } from "./counting";
import styles from "./Meters.module.css";
import { MeterState } from "./MeterState";
import { PriceText } from "./Prices";

/** Lists the meters with their current prices. */
export function Meters() {
  const navigate = useNavigate();
  const make = (
    <Verb needs="meters:write" variant="filled" onClick={() => void navigate({ to: "/meters/-/new" })}>
      Create a meter
    </Verb>
  );
  return (
    <>
      <Head title="Meters" action={make}>
        Each meter counts the events of one type. <Link to="/meters/-/plans">Plans</Link> set other prices for some customers.
      </Head>
      <Allowed to="meters:read">
        <MeterTable />
      </Allowed>
    </>
  );
}

const columns = [{ title: "Meter" }, { title: "Event type" }, { title: "Counts" }, { title: "Price now" }, { title: "Status" }];

/** Lists the meters with their prices. */
function MeterTable() {
  const { archived, page } = useSearch({ from: "/frame/meters" });
  const query = useQuery({ ...meters(page, archived !== undefined), placeholderData: keepPreviousData });
  return (
    <>
      <List what="The meters" columns={columns} query={query} page={page} empty={<None />}>
        {(meter) => (
          <tr key={meter.id}>
            <td className={cell.main}>
              <Link to="/meters/$meter/prices" params={{ meter: meter.slug }}>
                {meter.slug}
              </Link>
            </td>
            <td className={styles.type}>
              <Identifier>{meter.event_type}</Identifier>
            </td>
            <td>{counting(meter)}</td>
            <td>
              <Price meter={meter.slug} />
            </td>
            <td>
              <MeterState meter={meter} />
            </td>
          </tr>
        )}
      </List>
      <p className="small">
        <Link to="/meters" search={archived ? {} : { archived: "yes" }}>
          {archived ? "Hide archived meters" : "Show archived meters"}
        </Link>
      </p>
    </>
  );
}

/** Shows the meter's current price. */
function Price({ meter }: { meter: string }) {
  const { permissions } = useSession();
  const { data } = useQuery({ ...pricings(), enabled: permissions.includes("pricing:read") });
  if (!permissions.includes("pricing:read")) return <span className="muted">needs pricing:read</span>;
  if (!data) return <LoadingText />;
  const current = data.find(({ meter_slug }) => meter_slug === meter)?.current;
  return current ? <PriceText price={current} meter={meter} /> : <span className="muted">not charged</span>;
}

function None() {
  return (
    <Empty title="No meters yet">
      <p>A meter counts the events of one type, including earlier events. Customers are billed for its usage if the meter has a price.</p>
      <Link to="/meters/-/new">Create a meter</Link>
    </Empty>
  );
}
