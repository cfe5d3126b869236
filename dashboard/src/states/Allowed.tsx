import type { ReactNode } from "react";
import { useSession } from "../api/session";
import styles from "./states.module.css";

/** Shows its children if the user has the permission, and the missing permission otherwise. */
export function Allowed({ to, children }: { to: string; children: ReactNode }) {
  const { permissions, member } = useSession();
  if (permissions.includes(to)) return children;
  return (
    <div className={styles.state}>
      <h2>The role {member?.role} has no access</h2>
      <p>
        This screen needs the permission <span className="mono">{to}</span>. The owner can give you a role with this permission.
      </p>
    </div>
  );
}
