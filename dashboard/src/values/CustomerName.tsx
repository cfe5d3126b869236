import { called, type Named } from "../api/customers";

/** A customer by name, and beside it by the id that the tenant has given. */
export function CustomerName({ of }: { of: Named }) {
  return (
    <>
      {called(of)}
      {of.customer_name && <span className="muted small"> {of.external_id}</span>}
    </>
  );
}
