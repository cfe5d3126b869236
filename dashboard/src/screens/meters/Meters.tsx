import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { Verb } from "../../acts/Verb";
import { meters } from "../../api/meters";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Identifier } from "../../values/Identifier";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import { counting } from "./counting";
import { MeterState } from "./MeterState";

/** What is counted. */
export function Meters() {
  const navigate = useNavigate();
  const make = (
    <Verb needs="meters:write" variant="filled" onClick={() => void navigate({ to: "/meters/-/new" })}>
      Make a meter
    </Verb>
  );
  return (
    <>
      <Head title="Meters" action={make}>
        Each counts the events of one type.
      </Head>
      <Allowed to="meters:read">
        <All />
      </Allowed>
    </>
  );
}

const columns = [{ title: "Meter" }, { title: "Event type" }, { title: "Counts" }, { title: "Status" }];

function All() {
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
            <td>
              <Identifier>{meter.event_type}</Identifier>
            </td>
            <td>{counting(meter)}</td>
            <td>
              <MeterState meter={meter} />
            </td>
          </tr>
        )}
      </List>
      <p className="small">
        <Link to="/meters" search={archived ? {} : { archived: "yes" }}>
          {archived ? "Leave out archived meters" : "Show archived meters too"}
        </Link>
      </p>
    </>
  );
}

function None() {
  return (
    <Empty title="No meters yet">
      <p>A meter counts the events of one type, those that came before it too. Its usage is what customers are billed for.</p>
      <Link to="/meters/-/new">Make a meter</Link>
    </Empty>
  );
}
