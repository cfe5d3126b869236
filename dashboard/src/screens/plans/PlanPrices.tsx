import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { meters } from "../../api/meters";
import { Empty } from "../../states/Empty";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import { PriceNow } from "../meters/Prices";

const columns = [{ title: "Meter" }, { title: "Price in the plan now" }];

/** Lists the price of each meter in a plan. */
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
            <PriceNow of={{ plan, meter: slug }} none="the meter's own" later="the meter's own price until the plan's price takes effect" />
          </td>
        </tr>
      )}
    </List>
  );
}

function None() {
  return (
    <Empty title="No meters yet">
      <p>A plan can have a price for each meter. It replaces the meter's own price.</p>
      <Link to="/meters/-/new">Create a meter</Link>
    </Empty>
  );
}
