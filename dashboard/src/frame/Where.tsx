import type { ReactNode } from "react";
import styles from "./Where.module.css";

interface Props {
  /** The parents of the screen as links, the topmost first. */
  parts: readonly ReactNode[];
  /** The name of the screen among its siblings. */
  here: ReactNode;
}

/** Shows the path to a screen, from its topmost parent. */
export function Where({ parts, here }: Props) {
  return (
    <nav aria-label="You are here">
      <ol className={`muted small ${styles.where}`}>
        {[...parts, here].map((part, index) => (
          <li key={index}>{part}</li>
        ))}
      </ol>
    </nav>
  );
}
