import type { Schema } from "../../api/client";
import styles from "./Page.module.css";

interface Props {
  tenants: Schema<"SessionTenant">[];
  busy: boolean;
  choose: (id: string) => void;
}

/** Lists the tenants of which the user is a member, so that the user can choose one. */
export function TenantChoice({ tenants, busy, choose }: Props) {
  return (
    <ul className={styles.tenants}>
      {tenants.map((tenant) => (
        <li key={tenant.id}>
          <button type="button" className={styles.tenant} disabled={busy} onClick={() => choose(tenant.id)}>
            <span>{tenant.name}</span>
            <span className="muted small">
              {tenant.currency} · {tenant.timezone}
            </span>
          </button>
        </li>
      ))}
    </ul>
  );
}
