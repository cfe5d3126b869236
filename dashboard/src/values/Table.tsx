import type { ReactNode } from "react";
import styles from "./Table.module.css";

export interface Column {
  title: string;
  /** Numbers stand under each other, to the right. */
  number?: boolean;
  /** For those who listen alone, as of a column of buttons. */
  unseen?: boolean;
}

/** A table over the full width; on narrow screens each row is a list of two lines. */
export function Table({ caption, columns, children, busy }: { caption: string; columns: Column[]; children: ReactNode; busy?: boolean }) {
  return (
    <table className={styles.table} aria-busy={busy}>
      <caption className="unseen">{caption}</caption>
      <thead>
        <tr>
          {columns.map(({ title, number, unseen }, index) => (
            <th key={index} scope="col" className={number ? styles.right : undefined}>
              {unseen ? <span className="unseen">{title}</span> : title}
            </th>
          ))}
        </tr>
      </thead>
      {children}
    </table>
  );
}

/** What a cell holds: main is what the row is about, extra what narrow screens do without, and whole what a row has unfolded. */
export const cell = { number: styles.right, bar: styles.bar, main: styles.main, extra: `${styles.right} ${styles.extra}`, whole: styles.whole };
