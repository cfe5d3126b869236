import { useMemo, useState } from "react";
import uPlot from "uplot";
import { Quantity } from "../values/Amount";
import { grouped } from "../values/decimal";
import { axis, LegendItem, Plot, token, type Drawing } from "./Plot";
import type { Former, Points } from "./points";
import { tick } from "./ticks";

interface Props {
  label: string;
  points: Points;
  /** The unit of the values. */
  unit: string | undefined;
  /** The end of the last window. Until then, the window is drawn as incomplete. */
  end: string;
  /** Returns the time of a window, in words. */
  when: (start: string) => string;
  timezone: string;
}

/** Returns an instant as seconds since 1970. */
const seconds = (instant: string) => Date.parse(instant) / 1000;

/** Draws lines over time from rounded numbers, and shows the exact numbers. The arrow keys move along the lines. */
export function Chart({ label, points, unit, end, when, timezone }: Props) {
  const [at, setAt] = useState<number | null>(null);
  const drawing = useMemo(() => drawingOf(points, end, timezone), [points, end, timezone]);
  const read = at === null ? "" : `${when(points.starts[at]!)}: ${linesOf(points).filter(({ kind }) => kind !== "threshold").map(({ name, values }) => `${[name, values[at] ?? "nothing", unit ?? ""].join(" ").trim()}`).join(", ")}`;
  return (
    <Plot label={label} drawing={drawing} stops={points.starts.map((_, index) => index)} at={at} point={setAt} text={read}>
      <span className="muted small">{at === null ? "Point at the chart to read it" : when(points.starts[at]!)}</span>
      {linesOf(points).map(({ name, values, kind }, index) => (
        <LegendItem key={name} sign={kind === "series" ? "line" : "dashes"} colour={colour(kind, index)}>
          {name}
          {at !== null && kind !== "threshold" && values[at] != null && <Quantity value={values[at]} unit={unit ?? ""} />}
        </LegendItem>
      ))}
    </Plot>
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

/** Returns the CSS variable with the color of a line. */
function colour(kind: Line["kind"], index: number): string {
  if (kind === "series") return `--series-${index + 1}`;
  return kind === "former" ? "--muted" : "--bad";
}

/** Returns the data and the options for uPlot. */
function drawingOf(points: Points, end: string, timezone: string): Drawing {
  const { starts } = points;
  const lines = linesOf(points);
  const isAlone = points.series.length === 1 && !points.former;
  return {
    data: [starts.map(seconds), ...lines.map(({ values }) => values.map((value) => (value === null ? null : Number(value))))] as uPlot.AlignedData,
    options: () => ({
      tzDate: (at) => uPlot.tzDate(new Date(at * 1000), timezone),
      // The x axis extends to the end of the last window. The y axis includes 0, so that a small change looks small.
      scales: { x: { range: (_, min, max) => [min, Math.max(max, seconds(end))] }, y: { range: (_, min, max) => [Math.min(0, min), max > 0 ? max * 1.05 : 1] } },
      axes: [{ ...axis(), size: 32, gap: 10, values: (_, ticks, __, ___, apart) => labels(ticks, apart, timezone) }, { ...axis(), size: 56, values: (_, ticks) => ticks.map(tick) }],
      series: [
        {},
        ...lines.map(({ name, kind }, index) => {
          const stroke = token(colour(kind, index));
          return { label: name, stroke, width: 1.5, ...(kind !== "series" && { dash: [4, 4], points: { show: false } }), ...(isAlone && kind === "series" && { fill: `${stroke}1a` }) };
        }),
      ],
      hooks: { drawAxes: [(plot) => hatch(plot, starts, end, token("--line"))] },
    }),
  };
}

const day = 86_400;

/** Returns the shortest labels that distinguish the ticks. apart is the distance between ticks, in seconds. */
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

/** Hatches the last window, if it has not ended. */
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
