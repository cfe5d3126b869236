import { expect, test } from "vitest";
import { byDay, eventsOf, percentOf } from "./eventCounts";

const none = { accepted: 0, duplicates: 0, conflicts: 0, rejected: 0 };

test("the days of the tenant's timezone are listed, including days without events", () => {
  const window = { start: "2026-11-21T23:00:00Z", end: "2026-11-22T23:00:00Z", accepted: 3, duplicates: 1, conflicts: 0, rejected: 2, rejections: [] };
  const counts = { period: { start: "", end: "" }, granularity: "day" as const, ...none, rejections: [], windows: [window] };
  expect(byDay(counts, 3, "Europe/Zurich", new Date("2026-11-22T23:30:00Z"))).toEqual([undefined, window, undefined]);
});

test("uncounted events are counted by their code", () => {
  const counts = { ...none, rejections: [], uncounted: [{ code: "value_missing", count: 2 }], period: { start: "", end: "" }, granularity: "day" as const };
  expect(eventsOf(counts, "value_missing")).toBe(2);
  expect(eventsOf(counts, "value_invalid")).toBe(0);
  expect(eventsOf({ ...counts, accepted: 5 }, "accepted")).toBe(5);
  expect(eventsOf(undefined, "rejected")).toBe(0);
});

test("a small share is not rounded to zero", () => {
  expect(percentOf(2, 10_000)).toBe("0.02 %");
  expect(percentOf(1, 3)).toBe("33 %");
  expect(percentOf(0, 10)).toBe("0 %");
  expect(percentOf(0, 0)).toBe("");
});
