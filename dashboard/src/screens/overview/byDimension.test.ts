import { expect, test } from "vitest";
import { daily } from "./byDimension";

const day = (date: number) => `2026-11-0${date}T00:00:00.000Z`;
const line = (name: string, total: string, ...values: string[]) => ({ name, total, windows: values.map((value, index) => ({ start: day(index + 1), value })) });

test("the line of all others is the exact rest of the total usage, and comes last", () => {
  const { starts, series } = daily({ lines: [line("b", "0.3", "0.1", "0.2"), line("a", "2", "2")], all: line("all others", "12.4", "2.1", "0.3", "10") }, [day(1), day(2), day(3)]);
  expect(starts).toEqual([day(1), day(2), day(3)]);
  expect(series).toEqual([
    { name: "a", values: ["2", "0", "0"] },
    { name: "b", values: ["0.1", "0.2", "0"] },
    { name: "all others", values: ["0", "0.1", "10"] },
  ]);
});

test("the five largest values have lines of their own, and the others share one line", () => {
  const { series } = daily({ lines: Array.from({ length: 8 }, (_, index) => line(`m${index}`, `${index + 1}`, `${index + 1}.5`)) }, [day(1)]);
  expect(series.map(({ name }) => name)).toEqual(["m7", "m6", "m5", "m4", "m3", "3 others"]);
  expect(series[5]!.values).toEqual(["7.5"]);
});
