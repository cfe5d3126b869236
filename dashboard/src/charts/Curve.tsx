import { useMemo, useState } from "react";
import type uPlot from "uplot";
import { axis, LegendItem, Plot, token, type Drawing } from "./Plot";
import { tick } from "./ticks";

/** A position on the horizontal axis, with the values of the lines there. */
export interface Place {
  /** The position, as the API has written it. */
  x: string;
  /** The value of each line at the place. */
  values: string[];
  /** Whether a point is drawn on the first line. */
  marked: boolean;
}

interface Props {
  label: string;
  /** The places, in ascending order of x. */
  places: Place[];
  /** The names of the lines. points is the name of the points. */
  names: string[];
  points: string;
  /** Returns the description of a place. */
  read: (place: Place) => string;
}

/** Draws lines over a quantity, with points on the first line. The arrow keys move from point to point. */
export function Curve({ label, places, names, points, read }: Props) {
  const [at, setAt] = useState<number | null>(null);
  const marks = places.flatMap(({ marked }, index) => (marked ? [index] : []));
  const drawing = useMemo(() => drawingOf(places, [...names, points]), [places, names, points]);
  const place = at === null ? undefined : places[at];
  return (
    <Plot label={label} drawing={drawing} stops={marks.length > 0 ? marks : places.map((_, index) => index)} at={at} point={setAt} text={place ? read(place) : ""}>
      <span className="muted small">{place ? read(place) : "Point at the chart to read it"}</span>
      {[...names, ...(marks.length > 0 ? [points] : [])].map((name, index) => (
        <LegendItem key={name} sign={index === names.length ? "points" : index === 0 ? "line" : "dashes"} colour={colour(index, names.length)}>
          {name}
        </LegendItem>
      ))}
    </Plot>
  );
}

/** Returns the colour of a line, or of the points, which come after the lines. */
function colour(index: number, lines: number): string {
  if (index === lines) return "--series-2";
  return index === 0 ? "--series-1" : "--muted";
}

/** Returns the drawing of the lines, with the points as the last series. */
function drawingOf(places: Place[], names: string[]): Drawing {
  const last = names.length - 1;
  const series = names.map((_, line) => places.map(({ values, marked }) => (line < last ? Number(values[line]) : marked ? Number(values[0]) : null)));
  return {
    data: [places.map(({ x }) => Number(x)), ...series] as uPlot.AlignedData,
    options: () => ({
      scales: { x: { time: false, range: (_, __, max) => [0, max > 0 ? max : 1] }, y: { range: (_, __, max) => [0, max > 0 ? max * 1.05 : 1] } },
      axes: [{ ...axis(), size: 32, gap: 10, values: (_, ticks) => ticks.map(tick) }, { ...axis(), size: 56, values: (_, ticks) => ticks.map(tick) }],
      series: [
        {},
        ...names.map((label, index) => {
          const stroke = token(colour(index, last));
          if (index === last) return { label, stroke, fill: stroke, width: 0, paths: () => null, points: { show: true, size: 8, fill: stroke } };
          return { label, stroke, width: 1.5, points: { show: false }, ...(index > 0 && { dash: [4, 4] }) };
        }),
      ],
    }),
  };
}
