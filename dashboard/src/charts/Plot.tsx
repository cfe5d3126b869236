import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef, type KeyboardEvent, type ReactNode } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import styles from "./Chart.module.css";
import { indexAfterKey } from "./keys";

/** The content of a plot. A new object creates the plot again, even if the content is the same. */
export interface Drawing {
  data: uPlot.AlignedData;
  options: () => Omit<uPlot.Options, "width" | "height" | "legend" | "cursor">;
}

const height = 240;

/** Returns the value of a colour token. */
export const token = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Returns the common options of the axes, in the colours of the scheme. */
export const axis = () => ({ stroke: token("--muted"), grid: { stroke: token("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" });

interface Props {
  label: string;
  drawing: Drawing;
  /** The indexes at which the arrow keys stop, in ascending order. */
  stops: number[];
  /** The index that the user points at, if any. */
  at: number | null;
  point: (at: number | null) => void;
  /** The values at that index in words, for screen readers. Empty if there is no index. */
  text: string;
  /** The legend. */
  children: ReactNode;
}

/** Draws a plot. The user reads it with the pointer or the arrow keys. */
export function Plot({ label, drawing, stops, at, point, text, children }: Props) {
  const scheme = useComputedColorScheme("light");
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);

  useEffect(() => {
    const parent = box.current;
    if (!parent) return;
    const { hooks, ...options } = drawing.options();
    const common = { width: parent.clientWidth, height, legend: { show: false }, cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } } };
    plot.current = new uPlot({ ...common, ...options, hooks: { ...hooks, setCursor: [(drawn) => point(drawn.cursor.idx ?? null)] } }, drawing.data, parent);
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: parent.clientWidth, height }));
    resized.observe(parent);
    return () => {
      resized.disconnect();
      plot.current?.destroy();
      plot.current = null;
      point(null);
    };
  }, [drawing, scheme, point]);

  const last = stops.length - 1;
  const stop = at === null ? null : stops.findLastIndex((index) => index <= at);
  const move = (event: KeyboardEvent) => {
    const next = indexAfterKey(event.key, stop, last);
    if (next === undefined || !plot.current) return;
    event.preventDefault();
    plot.current.setCursor({ left: plot.current.valToPos(drawing.data[0][stops[next]!]!, "x"), top: 0 });
  };

  return (
    <figure className={styles.figure}>
      <div
        ref={box}
        className={styles.plot}
        style={{ height }}
        role="slider"
        tabIndex={0}
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={Math.max(0, last)}
        aria-valuenow={Math.max(0, stop ?? 0)}
        aria-valuetext={text || "Use the arrow keys"}
        onKeyDown={move}
      />
      <figcaption className={styles.legend}>{children}</figcaption>
    </figure>
  );
}

/** Shows an entry of the legend: the sign of a line or of points, and its name. */
export function LegendItem({ sign, colour, children }: { sign: "line" | "dashes" | "points"; colour: string; children: ReactNode }) {
  return (
    <span className={styles.item}>
      <svg width="10" height="10" aria-hidden="true" style={{ fill: `var(${colour})` }}>
        {sign === "points" && <circle cx="5" cy="5" r="4" />}
        {sign === "line" && <rect width="10" height="10" rx="2" />}
        {sign === "dashes" && <path d="M0 4h4v2H0zM6 4h4v2H6z" />}
      </svg>
      {children}
    </span>
  );
}
