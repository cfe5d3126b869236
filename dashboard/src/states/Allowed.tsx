import type { ReactNode } from "react";
import { useSession } from "../api/session";
import styles from "./states.module.css";

/** Its children for who has the permission; for others, what they lack. */
export function Allowed({ to, children }: { to: string; children: ReactNode }) {
  const { permissions, member } = useSession();
  if (permissions.includes(to)) return children;
  return (
    <div className={styles.state}>
      <h2>Not for the role {member?.role}</h2>
      <p>
        This needs the permission <span className="mono">{to}</span>. The owner can give you a role that has it.
      </p>
    </div>
  );
}
