import styles from "./State.module.css";

/** good and bad are ends; waiting goes on by itself; off does nothing. */
export type Meaning = "good" | "waiting" | "bad" | "off";

/** The state that something is in: a word, and a dot in the colour of what it means. */
export function State({ is, children }: { is: Meaning; children: string }) {
  return (
    <span className={styles.state}>
      <span className={`${styles.dot} ${styles[is]}`} aria-hidden="true" />
      {children}
    </span>
  );
}
