import type { ReactNode } from "react";
import styles from "./Table.module.css";

export interface Column {
  title: string;
  /** Whether the column has numbers, which are aligned to the right. */
  number?: boolean;
  /** Whether the title is for screen readers only, for example of a column of buttons. */
  unseen?: boolean;
}

/** Shows a table over the full width. On narrow screens, each row is a list of two lines. */
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

/** The classes of cells. main: the subject of the row. extra: hidden on narrow screens. whole: the unfolded details. */
export const cell = { number: styles.right, bar: styles.bar, main: styles.main, extra: `${styles.right} ${styles.extra}`, whole: styles.whole };
