import { customerLabel, type Named } from "../api/customers";
import styles from "./CustomerName.module.css";

/** Shows a customer's name and external id, or the external id alone if the customer has no name. */
export function CustomerName({ of }: { of: Named }) {
  return (
    <span className={styles.name}>
      {customerLabel(of)}
      {of.customer_name && <span className={`muted small ${styles.id}`}> {of.external_id}</span>}
    </span>
  );
}
