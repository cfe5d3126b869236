import { useState, type KeyboardEvent, type MouseEvent } from "react";
import { grouped, shares } from "../values/decimal";
import { indexAfterKey } from "./keys";
import styles from "./Trend.module.css";

const [width, gap, height] = [3, 1, 20];

interface Props {
  label: string;
  values: number[];
  /** Returns the time of a bar, in words. */
  when: (index: number) => string;
}

/** Draws a bar for each value, in the order of time. The user reads a bar with the pointer or the arrow keys. */
export function Trend({ label, values, when }: Props) {
  const [at, setAt] = useState<number | null>(null);
  const last = values.length - 1;
  const pressed = (event: KeyboardEvent) => {
    const next = indexAfterKey(event.key, at, last);
    if (next === undefined) return;
    event.preventDefault();
    setAt(next);
  };
  const pointed = ({ clientX, currentTarget }: MouseEvent) => {
    const from = currentTarget.getBoundingClientRect().left;
    setAt(Math.max(0, Math.min(last, Math.floor((clientX - from) / (width + gap)))));
  };
  const left = () => setAt(null);
  const read = at === null ? "" : `${when(at)}: ${grouped(String(values[at]))}`;
  return (
    <span
      className={styles.trend}
      role="slider"
      tabIndex={0}
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={last}
      aria-valuenow={at ?? last}
      aria-valuetext={read || "Use the arrow keys"}
      onKeyDown={pressed}
      onBlur={left}
      onMouseMove={pointed}
      onMouseLeave={left}
    >
      {read && <span className={styles.read}>{read}</span>}
      <svg width={values.length * (width + gap) - gap} height={height} aria-hidden="true">
        {shares(values.map(String)).map((share, index) => {
          const high = share > 0 ? Math.max(2, share * height) : 1;
          return <rect key={index} className={index === at ? styles.at : share > 0 ? undefined : styles.none} x={index * (width + gap)} y={height - high} width={width} height={high} />;
        })}
      </svg>
    </span>
  );
}
