import { useQuery } from "@tanstack/react-query";
import { Link, Outlet, useParams } from "@tanstack/react-router";
import { Failure } from "../../api/client";
import { customer as read } from "../../api/customers";
import { Tabs } from "../../frame/Tabs";
import { useTitle } from "../../frame/useTitle";
import { Where } from "../../frame/Where";
import { Allowed } from "../../states/Allowed";
import { Empty } from "../../states/Empty";
import { Failed } from "../../states/Failed";
import { LoadingText } from "../../states/Loading";
import { Identifier } from "../../values/Identifier";
import styles from "./Customer.module.css";

const tabs = [
  ["/customers/$customer/usage", "Usage"],
  ["/customers/$customer/quotas", "Quotas"],
  ["/customers/$customer/prices", "Prices"],
  ["/customers/$customer/bill", "Bill"],
  ["/customers/$customer/invoices", "Invoices"],
  ["/customers/$customer/syncs", "Syncs"],
  ["/customers/$customer/details", "Details"],
] as const;

/** Shows a customer's name, ids and tabs, and the chosen tab below them. */
export function Customer() {
  return (
    <Allowed to="customers:read">
      <Head />
    </Allowed>
  );
}

/** Shows the name and the ids of the customer, or that the customer does not exist. */
function Head() {
  const params = useParams({ from: "/frame/customers/$customer" });
  const { data, error, refetch } = useQuery(read(params.customer));
  useTitle(data && (data.name || data.external_id));
  if (error instanceof Failure && (error.status === 404 || error.status === 422)) {
    return (
      <Empty title={`There is no customer ${params.customer}`}>
        <Link to="/customers">All customers</Link>
      </Empty>
    );
  }
  if (error && !data) return <Failed what="The customer" error={error} retry={() => void refetch()} />;
  return (
    <>
      <Where parts={[<Link to="/customers">Customers</Link>]} here={data?.external_id} />
      <h1 className={styles.title}>{data ? data.name || data.external_id : <LoadingText />}</h1>
      <p className={styles.ids}>{data ? <Ids id={data.id} externalID={data.external_id} linked={data.billing_provider_id} /> : <LoadingText />}</p>
      <Tabs label="About this customer" tabs={tabs} params={params} />
      <Outlet />
    </>
  );
}

/** Shows the ids of the customer: the external one, Odometer's and the provider's. */
function Ids({ id, externalID, linked }: { id: string; externalID: string; linked: string | null }) {
  return (
    <>
      <Identifier>{externalID}</Identifier>
      <Identifier>{id}</Identifier>
      {linked && <Identifier>{linked}</Identifier>}
    </>
  );
}
