import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef, useState, type KeyboardEvent } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import styles from "./Chart.module.css";
import { moved } from "./keys";
import { tick } from "./ticks";

/** A place on the horizontal axis: its values, and how it is read. */
export interface Place {
  /** Where it is, as the API has written it. */
  x: string;
  /** The value of each line there. */
  values: string[];
  /** Whether a point is drawn on the first line. */
  marked: boolean;
}

interface Props {
  label: string;
  /** In ascending order. */
  places: Place[];
  /** The names of the lines, and of the points. */
  names: string[];
  points: string;
  /** What a place is, in words. */
  read: (place: Place) => string;
}

const height = 240;
const token = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Lines over a quantity with points on the first one. The arrow keys move from point to point. */
export function Curve({ label, places, names, points, read }: Props) {
  const scheme = useComputedColorScheme("light");
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const [at, setAt] = useState<number | null>(null);
  const marks = places.flatMap(({ marked }, index) => (marked ? [index] : []));
  const stops = marks.length > 0 ? marks : places.map((_, index) => index);

  useEffect(() => {
    const parent = box.current;
    if (!parent) return;
    const lines = names.map((_, line) => places.map(({ values }) => Number(values[line])));
    const data = [places.map(({ x }) => Number(x)), ...lines, places.map(({ values, marked }) => (marked ? Number(values[0]) : null))] as uPlot.AlignedData;
    plot.current = new uPlot(options([...names, points], parent.clientWidth, setAt), data, parent);
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: parent.clientWidth, height }));
    resized.observe(parent);
    return () => {
      resized.disconnect();
      plot.current?.destroy();
      plot.current = null;
      setAt(null);
    };
  }, [places, names, points, scheme]);

  const stop = at === null ? null : stops.findLastIndex((index) => index <= at);
  const move = (event: KeyboardEvent) => {
    const next = moved(event.key, stop, stops.length - 1);
    if (next === undefined || !plot.current) return;
    event.preventDefault();
    plot.current.setCursor({ left: plot.current.valToPos(Number(places[stops[next]!]!.x), "x"), top: 0 });
  };

  const place = at === null ? undefined : places[at];
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
        aria-valuemax={Math.max(0, stops.length - 1)}
        aria-valuenow={Math.max(0, stop ?? 0)}
        aria-valuetext={place ? read(place) : "Use the arrow keys"}
        onKeyDown={move}
      />
      <figcaption className={styles.legend}>
        <span className="muted small">{place ? read(place) : "Point at the chart to read it"}</span>
        {[...names, ...(marks.length > 0 ? [points] : [])].map((name, index) => (
          <span key={name} className={styles.item}>
            <svg width="10" height="10" aria-hidden="true" style={{ fill: `var(${colour(index, names.length)})` }}>
              {index === names.length ? <circle cx="5" cy="5" r="4" /> : index === 0 ? <rect width="10" height="10" rx="2" /> : <path d="M0 4h4v2H0zM6 4h4v2H6z" />}
            </svg>
            {name}
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

/** The colour of a line, or of the points, which come after the lines. */
function colour(index: number, lines: number): string {
  if (index === lines) return "--series-2";
  return index === 0 ? "--series-1" : "--muted";
}

function options(names: string[], width: number, moved: (index: number | null) => void): uPlot.Options {
  const [line, muted] = [token("--line"), token("--muted")];
  const axis = { stroke: muted, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "12px system-ui", values: (_: uPlot, ticks: number[]) => ticks.map(tick) };
  const last = names.length - 1;
  return {
    width,
    height,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: { x: { time: false, range: (_, __, max) => [0, max > 0 ? max : 1] }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.05 : 1] } },
    axes: [{ ...axis, size: 32, gap: 10 }, { ...axis, size: 56 }],
    series: [
      {},
      ...names.map((label, index) => {
        const stroke = token(colour(index, last));
        if (index === last) return { label, stroke, fill: stroke, width: 0, paths: () => null, points: { show: true, size: 8, fill: stroke } };
        return { label, stroke, width: 1.5, points: { show: false }, ...(index > 0 && { dash: [4, 4] }) };
      }),
    ],
    hooks: { setCursor: [(plot) => moved(plot.cursor.idx ?? null)] },
  };
}
