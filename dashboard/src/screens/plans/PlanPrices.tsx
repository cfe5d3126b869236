import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { meters } from "../../api/meters";
import { pricings } from "../../api/prices";
import { Empty } from "../../states/Empty";
import { LoadingText } from "../../states/Loading";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import { PriceText } from "../meters/Prices";

const columns = [{ title: "Meter" }, { title: "Price in the plan now" }];

/** What each meter is charged at in a plan. */
export function PlanPrices() {
  const { plan } = useParams({ from: "/frame/meters/-/plans/$plan/prices" });
  const { page } = useSearch({ from: "/frame/meters/-/plans/$plan/prices" });
  const query = useQuery({ ...meters(page, false), placeholderData: keepPreviousData });
  return (
    <List what="The meters" columns={columns} query={query} page={page} empty={<None />}>
      {({ id, slug }) => (
        <tr key={id}>
          <td className={cell.main}>
            <Link to="/meters/-/plans/$plan/prices/$meter" params={{ plan, meter: slug }}>
              {slug}
            </Link>
          </td>
          <td>
            <Price plan={plan} meter={slug} />
          </td>
        </tr>
      )}
    </List>
  );
}

function Price({ plan, meter }: { plan: string; meter: string }) {
  const { data } = useQuery(pricings({ plan }));
  if (!data) return <LoadingText />;
  const found = data.find(({ meter_slug }) => meter_slug === meter);
  if (found?.current) return <PriceText price={found.current} meter={meter} />;
  return <span className="muted">{found ? "the meter's own price until the plan's price takes effect" : "the meter's own"}</span>;
}

function None() {
  return (
    <Empty title="No meters yet">
      <p>A plan can have a price for each meter. It replaces the meter's own price.</p>
      <Link to="/meters/-/new">Create a meter</Link>
    </Empty>
  );
}
