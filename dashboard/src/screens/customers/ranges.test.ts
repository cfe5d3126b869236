import { expect, test } from "vitest";
import { instantsOf } from "./ranges";

const now = new Date("2026-11-23T23:30:00Z"); // the 24th in Zurich

test("a range of a number of days ends with today", () => {
  expect(instantsOf({ range: "7" }, "Europe/Zurich", now)).toEqual({ start: "2026-11-17T23:00:00.000Z", end: "2026-11-24T23:00:00.000Z" });
});

test("chosen days are whole days, including the last one", () => {
  const asked = { range: "days", from: "2026-10-25", to: "2026-10-25" };
  expect(instantsOf(asked, "Europe/Zurich", now)).toEqual({ start: "2026-10-24T22:00:00.000Z", end: "2026-10-25T23:00:00.000Z" });
});

test("missing or wrong first days give the thirty days up to the last day", () => {
  for (const asked of [{ to: "2026-11-01" }, { from: "2026-11-02", to: "2026-11-01" }, { from: "x", to: "2026-11-01" }]) {
    expect(instantsOf({ range: "days", ...asked }, "UTC", now)).toEqual({ start: "2026-10-03T00:00:00.000Z", end: "2026-11-02T00:00:00.000Z" });
  }
});

test("without a known range, the API's default applies: the running billing period", () => {
  for (const asked of [{}, { range: "8" }]) expect(instantsOf(asked, "UTC", now)).toEqual({});
});
