import type { ReactNode } from "react";
import styles from "./states.module.css";

/** Shows an empty state: a sentence as the title, the content to expect, and the next step. */
export function Empty({ title, children }: { title: string; children: ReactNode }) {
  return (
    <div className={styles.state}>
      <h2>{title}</h2>
      {children}
    </div>
  );
}
