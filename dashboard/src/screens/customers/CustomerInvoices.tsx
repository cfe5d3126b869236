import { useQuery } from "@tanstack/react-query";
import { useParams } from "@tanstack/react-router";
import { customer as read } from "../../api/customers";
import { Allowed } from "../../states/Allowed";
import { Reconciliation } from "../billing/Reconciliation";

/** Compares a customer's closed periods with the provider's final invoices. */
export function CustomerInvoices() {
  const params = useParams({ from: "/frame/customers/$customer/invoices" });
  const { data } = useQuery(read(params.customer));
  return <Allowed to="billing:read">{data && <Reconciliation customer={data.external_id} />}</Allowed>;
}
