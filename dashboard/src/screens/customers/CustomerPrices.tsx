import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { customer as readCustomer } from "../../api/customers";
import { meters } from "../../api/meters";
import { Head } from "../../frame/Head";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { LoadingText } from "../../states/Loading";
import { List } from "../../values/List";
import { cell } from "../../values/Table";
import { PriceNow, Prices } from "../meters/Prices";

const columns = [{ title: "Meter" }, { title: "Own price now" }];

/** Lists the meters, each with the customer's own price, if there is one. */
export function CustomerPrices() {
  const { customer } = useParams({ from: "/frame/customers/$customer/prices" });
  const { page } = useSearch({ from: "/frame/customers/$customer/prices" });
  const { data } = useQuery(readCustomer(customer));
  const query = useQuery({ ...meters(page, false), placeholderData: keepPreviousData });
  return (
    <Allowed to="pricing:read">
      <Head part title="Own prices">
        A customer's own price replaces the price of the plan and the meter's own price.
      </Head>
      <List what="The meters" columns={columns} query={query} page={page} empty={<None />}>
        {({ id, slug }) => (
          <tr key={id}>
            <td className={cell.main}>
              <Link to="/customers/$customer/prices/$meter" params={{ customer, meter: slug }}>
                {slug}
              </Link>
            </td>
            <td>{data ? <PriceNow of={{ customer: data.external_id, meter: slug }} none="none" later="none now" /> : <LoadingText />}</td>
          </tr>
        )}
      </List>
    </Allowed>
  );
}

function None() {
  return (
    <Empty title="No meters yet">
      <p>A customer can have a price of its own for each meter.</p>
      <Link to="/meters/-/new">Create a meter</Link>
    </Empty>
  );
}

/** Shows and changes a customer's own price of one meter. */
export function CustomerPrice() {
  const { customer, meter } = useParams({ from: "/frame/customers/$customer/prices/$meter" });
  const { data } = useQuery(readCustomer(customer));
  return (
    <Allowed to="pricing:read">
      <Head part title={meter}>
        <Link to="/customers/$customer/prices" params={{ customer }}>
          All own prices of the customer
        </Link>
      </Head>
      {data && <Prices key={`${customer} ${meter}`} of={{ customer: data.external_id, meter }} />}
    </Allowed>
  );
}
