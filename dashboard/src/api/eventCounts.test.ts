import { expect, test } from "vitest";
import { byDay, share } from "./eventCounts";

const none = { accepted: 0, duplicates: 0, conflicts: 0, rejected: 0 };

test("days without events are days too, and they are those of the timezone", () => {
  const window = { start: "2026-11-21T23:00:00Z", end: "2026-11-22T23:00:00Z", accepted: 3, duplicates: 1, conflicts: 0, rejected: 2, rejections: [] };
  const counts = { period: { start: "", end: "" }, granularity: "day" as const, ...none, rejections: [], windows: [window] };
  expect(byDay(counts, 3, "Europe/Zurich", new Date("2026-11-22T23:30:00Z"))).toEqual([none, window, none]);
});

test("a small share is not nothing", () => {
  expect(share(2, 10_000)).toBe("0.02 %");
  expect(share(1, 3)).toBe("33 %");
  expect(share(0, 10)).toBe("0 %");
  expect(share(0, 0)).toBe("");
});
