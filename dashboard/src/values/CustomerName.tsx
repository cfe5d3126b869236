import { called, type Named } from "../api/customers";
import styles from "./CustomerName.module.css";

/** A customer by name, and beside it by the id that the tenant has given. */
export function CustomerName({ of }: { of: Named }) {
  return (
    <span className={styles.name}>
      {called(of)}
      {of.customer_name && <span className={`muted small ${styles.id}`}> {of.external_id}</span>}
    </span>
  );
}
