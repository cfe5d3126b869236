import styles from "./State.module.css";

/** good and bad are ends; waiting goes on by itself; off does nothing. */
export type Meaning = "good" | "waiting" | "bad" | "off";

/** The state that something is in: a word, and a dot in the colour of what it means. */
export function State({ is, says, children }: { is: Meaning; /** For who points at it. */ says?: string; children: string }) {
  return (
    <span className={styles.state} title={says}>
      <span className={`${styles.dot} ${styles[is]}`} aria-hidden="true" />
      {children}
    </span>
  );
}
