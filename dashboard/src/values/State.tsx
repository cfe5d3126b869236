import styles from "./State.module.css";

/** The meaning of a state: good is as intended, bad is a problem, waiting is temporary, off is inactive. */
export type Meaning = "good" | "waiting" | "bad" | "off";

/** Shows a state as a word, with a dot in the colour of its meaning. */
export function State({ is, says, children }: { is: Meaning; /** The text of the tooltip. */ says?: string; children: string }) {
  return (
    <span className={styles.state} title={says}>
      <span className={`${styles.dot} ${styles[is]}`} aria-hidden="true" />
      {children}
    </span>
  );
}
