import { expect, test } from "vitest";
import { fromNow, nextDay, offset, range, startOfDay, written } from "./instants";

test("a period ends with its last day, in the tenant's timezone", () => {
  expect(range("2026-11-01T00:00:00Z", "2026-12-01T00:00:00Z", "UTC")).toBe("1 – 30 Nov 2026");
  expect(range("2026-10-31T23:00:00Z", "2026-11-30T23:00:00Z", "Europe/Zurich")).toBe("1 – 30 Nov 2026");
  expect(range("2026-12-15T00:00:00Z", "2027-01-15T00:00:00Z", "UTC")).toBe("15 Dec 2026 – 14 Jan 2027");
});

test("a time is written in the timezone", () => {
  expect(written("2026-11-30T23:30:00Z", "Asia/Kathmandu", "minute")).toBe("1 Dec 2026, 05:15");
  expect(written("2026-11-30T23:30:00Z", "America/New_York", "date")).toBe("30 Nov 2026");
});

test("offsets depend on daylight saving time", () => {
  expect(offset("Europe/Zurich", new Date("2026-07-01T00:00:00Z"))).toBe("UTC+2");
  expect(offset("Europe/Zurich", new Date("2026-12-01T00:00:00Z"))).toBe("UTC+1");
  expect(offset("Asia/Kathmandu", new Date("2026-12-01T00:00:00Z"))).toBe("UTC+5:45");
  expect(offset("UTC", new Date("2026-12-01T00:00:00Z"))).toBe("UTC");
});

test("a day starts at midnight in the timezone, also on days when the offset changes", () => {
  expect(startOfDay("2026-12-01", "UTC")).toBe("2026-12-01T00:00:00.000Z");
  expect(startOfDay("2026-12-01", "Europe/Zurich")).toBe("2026-11-30T23:00:00.000Z");
  expect(startOfDay("2026-03-29", "Europe/Zurich")).toBe("2026-03-28T23:00:00.000Z");
  expect(startOfDay("2026-03-30", "Europe/Zurich")).toBe("2026-03-29T22:00:00.000Z");
  expect(startOfDay("2026-11-01", "America/New_York")).toBe("2026-11-01T04:00:00.000Z");
  expect(startOfDay("2026-12-01", "Asia/Kathmandu")).toBe("2026-11-30T18:15:00.000Z");
});

test("the next day can be in another month or year", () => {
  expect(["2026-11-30", "2026-12-31", "2028-02-28", "2026-03-28"].map((of) => nextDay(of))).toEqual(["2026-12-01", "2027-01-01", "2028-02-29", "2026-03-29"]);
});

test("an instant slightly in the future is just now, because the API's clock may be ahead", () => {
  const now = new Date("2026-12-01T12:00:00Z");
  expect(["12:00:03", "11:59:30", "12:00:30", "12:01:00", "11:00:00"].map((time) => fromNow(`2026-12-01T${time}Z`, now))).toEqual(["just now", "just now", "in less than a minute", "in 1 minute", "1 hour ago"]);
});
