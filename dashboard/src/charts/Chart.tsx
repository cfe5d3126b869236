import { useComputedColorScheme } from "@mantine/core";
import { useEffect, useRef, useState, type KeyboardEvent } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { Quantity } from "../values/Amount";
import { grouped } from "../values/decimal";
import styles from "./Chart.module.css";
import { moved } from "./keys";
import type { Former, Points } from "./points";
import { tick } from "./ticks";

interface Props {
  label: string;
  points: Points;
  /** Of the values. */
  unit: string | undefined;
  /** Of the last window; until then it is drawn as incomplete. */
  end: string;
  /** When a window is, in words. */
  when: (start: string) => string;
  timezone: string;
}

const height = 240;
const token = (name: string) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const seconds = (instant: string) => Date.parse(instant) / 1000;

/** Lines over time, drawn from rounded numbers and read from exact ones. The arrow keys move along it. */
export function Chart({ label, points, unit, end, when, timezone }: Props) {
  const scheme = useComputedColorScheme("light");
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>(null);
  const [at, setAt] = useState<number | null>(null);
  const last = points.starts.length - 1;

  useEffect(() => {
    const parent = box.current;
    if (!parent) return;
    const data = [points.starts.map(seconds), ...linesOf(points).map(({ values }) => values.map((value) => (value === null ? null : Number(value))))] as uPlot.AlignedData;
    plot.current = new uPlot(options(points, end, timezone, parent.clientWidth, setAt), data, parent);
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: parent.clientWidth, height }));
    resized.observe(parent);
    return () => {
      resized.disconnect();
      plot.current?.destroy();
      plot.current = null;
      setAt(null);
    };
  }, [points, end, timezone, scheme]);

  const move = (event: KeyboardEvent) => {
    const next = moved(event.key, at, last);
    if (next === undefined || !plot.current) return;
    event.preventDefault();
    plot.current.setCursor({ left: plot.current.valToPos(seconds(points.starts[next]!), "x"), top: 0 });
  };

  const read = at === null ? "" : `${when(points.starts[at]!)}: ${linesOf(points).filter(({ kind }) => kind !== "threshold").map(({ name, values }) => `${[name, values[at] ?? "nothing", unit ?? ""].join(" ").trim()}`).join(", ")}`;
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
        aria-valuenow={at ?? 0}
        aria-valuetext={read || "Use the arrow keys"}
        onKeyDown={move}
      />
      <figcaption className={styles.legend}>
        <span className="muted small">{at === null ? "Point at the chart to read it" : when(points.starts[at]!)}</span>
        {linesOf(points).map(({ name, values, kind }, index) => (
          <span key={name} className={styles.item}>
            <svg width="10" height="10" aria-hidden="true" style={{ fill: `var(${colour(kind, index)})` }}>
              {kind === "series" ? <rect width="10" height="10" rx="2" /> : <path d="M0 4h4v2H0zM6 4h4v2H6z" />}
            </svg>
            {name}
            {at !== null && kind !== "threshold" && values[at] != null && <Quantity value={values[at]} unit={unit ?? ""} />}
          </span>
        ))}
      </figcaption>
    </figure>
  );
}

interface Line extends Former {
  kind: "series" | "former" | "threshold";
}

/** Returns the lines in the order in which they are drawn. */
function linesOf({ starts, series, former, thresholds = [] }: Points): Line[] {
  return [
    ...series.map((one) => ({ ...one, kind: "series" as const })),
    ...(former ? [{ ...former, kind: "former" as const }] : []),
    ...thresholds.map((value) => ({ name: `threshold ${grouped(value)}`, values: starts.map(() => value), kind: "threshold" as const })),
  ];
}

function colour(kind: Line["kind"], index: number): string {
  if (kind === "series") return `--series-${index + 1}`;
  return kind === "former" ? "--muted" : "--bad";
}

function options(points: Points, end: string, timezone: string, width: number, moved: (index: number | null) => void): uPlot.Options {
  const { starts } = points;
  const lines = linesOf(points);
  const isAlone = points.series.length === 1 && !points.former;
  const [line, muted] = [token("--line"), token("--muted")];
  const axis = { stroke: muted, grid: { stroke: line, width: 1 }, ticks: { show: false }, font: "12px system-ui" };
  return {
    width,
    height,
    tzDate: (at) => uPlot.tzDate(new Date(at * 1000), timezone),
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    // To the end of the last window, and from nothing, so that a small change looks small.
    scales: { x: { range: (_, min, max) => [min, Math.max(max, seconds(end))] }, y: { range: (_, min, max) => [Math.min(0, min), max > 0 ? max * 1.05 : 1] } },
    axes: [{ ...axis, size: 32, gap: 10, values: (_, ticks, __, ___, apart) => labels(ticks, apart, timezone) }, { ...axis, size: 56, values: (_, ticks) => ticks.map(tick) }],
    series: [
      {},
      ...lines.map(({ name, kind }, index) => {
        const stroke = token(colour(kind, index));
        return { label: name, stroke, width: 1.5, ...(kind !== "series" && { dash: [4, 4], points: { show: false } }), ...(isAlone && kind === "series" && { fill: `${stroke}1a` }) };
      }),
    ],
    hooks: {
      setCursor: [(plot) => moved(plot.cursor.idx ?? null)],
      drawAxes: [(plot) => hatch(plot, starts, end, line)],
    },
  };
}

const day = 86_400;

/** What stands under the ticks, which are so many seconds apart: as little as tells them from each other. */
function labels(ticks: number[], apart: number, timezone: string): string[] {
  const form = (options: Intl.DateTimeFormatOptions) => {
    const format = new Intl.DateTimeFormat("en-GB", { ...options, timeZone: timezone });
    return (tick: number) => format.format(tick * 1000);
  };
  const time = form({ hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  const date = form({ day: "numeric", month: "short" });
  const month = form({ month: "short", year: "numeric" });
  if (apart >= 28 * day) return ticks.map(month);
  if (apart >= day) return ticks.map(date);
  return ticks.map((tick) => (time(tick) === "00:00" ? date(tick) : time(tick)));
}

/** Hatches the last window, where it goes on. */
function hatch(plot: uPlot, starts: string[], end: string, colour: string) {
  const last = starts.at(-1);
  if (last === undefined || Date.parse(end) <= Date.now()) return;
  const { ctx, bbox } = plot;
  const from = plot.valToPos(seconds(last), "x", true);
  const to = Math.min(bbox.left + bbox.width, Math.max(from, plot.valToPos(seconds(end), "x", true)));
  ctx.save();
  ctx.beginPath();
  ctx.rect(from, bbox.top, to - from, bbox.height);
  ctx.clip();
  ctx.strokeStyle = colour;
  ctx.lineWidth = 1;
  for (let x = from - bbox.height; x < to; x += 8) {
    ctx.moveTo(x, bbox.top + bbox.height);
    ctx.lineTo(x + bbox.height, bbox.top);
  }
  ctx.stroke();
  ctx.restore();
}
