import { expect, test } from "vitest";
import { points, windowEnd, windows } from "./points";

const now = new Date("2026-11-23T12:30:00Z");

test("the days of a range are those of the timezone, also when its clocks change, and end now", () => {
  expect(windows("2026-10-23T22:00:00Z", "2026-10-27T23:00:00Z", "day", "Europe/Zurich", now)).toEqual([
    "2026-10-23T22:00:00.000Z",
    "2026-10-24T22:00:00.000Z",
    "2026-10-25T23:00:00.000Z",
    "2026-10-26T23:00:00.000Z",
  ]);
  expect(windows("2026-11-22T00:00:00Z", "2026-12-01T00:00:00Z", "day", "UTC", now)).toHaveLength(2);
});

test("weeks begin on Monday, also when the timezone's clocks change within a week", () => {
  expect(windows("2026-10-20T22:00:00Z", "2026-11-05T23:00:00Z", "week", "Europe/Zurich", now)).toEqual(["2026-10-25T23:00:00.000Z", "2026-11-01T23:00:00.000Z"]);
  expect(windowEnd("2026-10-20T22:00:00Z", "week", "Europe/Zurich")).toBe("2026-10-25T23:00:00.000Z");
});

test("a range that begins within a window does not include that window", () => {
  expect(windows("2026-11-21T10:30:00Z", "2026-11-23T00:00:00Z", "day", "UTC", now)).toEqual(["2026-11-22T00:00:00.000Z"]);
  expect(windows("2026-11-23T10:30:00Z", "2026-11-24T00:00:00Z", "hour", "UTC", now)).toEqual(["2026-11-23T11:00:00.000Z", "2026-11-23T12:00:00.000Z"]);
  expect(windows("2026-09-02T00:00:00Z", "2026-12-01T00:00:00Z", "month", "UTC", now)).toEqual(["2026-10-01T00:00:00.000Z", "2026-11-01T00:00:00.000Z"]);
});

test("a window ends where the next one begins", () => {
  expect(windowEnd("2026-10-24T22:00:00Z", "day", "Europe/Zurich")).toBe("2026-10-25T23:00:00.000Z");
  expect(windowEnd("2026-11-20T10:00:00Z", "month", "UTC")).toBe("2026-12-01T00:00:00.000Z");
  expect(windowEnd("2026-11-20T10:00:00Z", "hour", "UTC")).toBe("2026-11-20T11:00:00.000Z");
});

const start = "2026-11-01T00:00:00Z";
const group = (key: Record<string, string>, value: string, late = "0") => ({
  group_key: key,
  subtotal: value,
  filter: "",
  windows: [{ window_start: start, window_end: "2026-11-02T00:00:00Z", value, late_value: late, is_final: false }],
});

test("late usage is included, and a window without usage is 0", () => {
  const drawn = points([group({}, "1.5", "0.25")], ["2026-11-01T00:00:00.000Z", "2026-11-02T00:00:00.000Z"]);
  expect(drawn.series).toEqual([{ name: "all usage", values: ["1.75", "0"] }]);
});

test("the largest groups have lines of their own, and one line has the exact sum of all others", () => {
  const groups = Array.from({ length: 8 }, (_, index) => group({ model: `m${index}` }, `${index + 1}.1`));
  const { series } = points(groups, []);
  expect(series.map(({ name }) => name)).toEqual(["m7", "m6", "m5", "m4", "m3", "3 others"]);
  expect(series[5]!.values).toEqual(["6.3"]);
});
