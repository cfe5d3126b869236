import { expect, test } from "vitest";
import { formerRange, formerLine } from "./former";

const zurich = "Europe/Zurich";

test("the range before a billing period is the previous period, also when the clocks change", () => {
  expect(formerRange(["2026-10-31T23:00:00.000Z"], "day", true, zurich)).toEqual({ start: "2026-09-30T22:00:00.000Z", end: "2026-10-31T23:00:00.000Z" });
  expect(formerRange(["2026-03-31T00:00:00.000Z"], "day", true, "UTC").start).toBe("2026-02-28T00:00:00.000Z");
});

test("the range before another range has the same number of windows", () => {
  const starts = (length: number, first: string) => [first, ...Array.from({ length: length - 1 }, () => "")];
  expect(formerRange(starts(7, "2026-11-16T23:00:00.000Z"), "day", false, zurich).start).toBe("2026-11-09T23:00:00.000Z");
  expect(formerRange(starts(48, "2026-11-03T00:00:00.000Z"), "hour", false, "UTC").start).toBe("2026-11-01T00:00:00.000Z");
  expect(formerRange(starts(3, "2026-02-01T00:00:00.000Z"), "month", false, "UTC").start).toBe("2025-11-01T00:00:00.000Z");
});

test("the previous usage is summed over groups, and a day that the previous month lacks is null", () => {
  const used = (window_start: string, value: string, late_value = "0") => ({ window_start, window_end: window_start, value, late_value, is_final: true });
  const groups = [
    { group_key: { model: "a" }, subtotal: "3.75", windows: [used("2026-02-01T00:00:00Z", "1.5"), used("2026-02-02T00:00:00Z", "2", "0.25")] },
    { group_key: { model: "b" }, subtotal: "4", windows: [used("2026-02-02T00:00:00Z", "4")] },
  ];
  const former = { groups, period: { start: "2026-02-01T00:00:00Z", end: "2026-03-01T00:00:00Z" } } as never;
  const { values } = formerLine(former, "day", 31, "UTC", "the previous period");
  expect(values.slice(0, 3)).toEqual(["1.5", "6.25", "0"]);
  expect(values.slice(27)).toEqual(["0", null, null, null]);
});
