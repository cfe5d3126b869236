import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { customer as read } from "../../api/customers";
import { Allowed } from "../../states/Allowed";
import { Syncs } from "../billing/Syncs";

/** Lists a customer's syncs, which report its usage to the provider. */
export function CustomerSyncs() {
  const params = useParams({ from: "/frame/customers/$customer/syncs" });
  const { data } = useQuery(read(params.customer));
  return <Allowed to="billing:read">{data && <Syncs customer={data.external_id} />}</Allowed>;
}
