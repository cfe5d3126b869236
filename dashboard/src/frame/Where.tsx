import type { ReactNode } from "react";
import styles from "./Where.module.css";

interface Props {
  /** What a screen is a part of, as links, the whole first. */
  parts: readonly ReactNode[];
  /** What the screen itself is called among its like. */
  here: ReactNode;
}

/** The way to a screen, from what it is a part of. */
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
