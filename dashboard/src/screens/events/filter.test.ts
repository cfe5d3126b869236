import { expect, test } from "vitest";
import { asked, isLive } from "./filter";

test("times are those of the tenant's clocks, and a day is its beginning", () => {
  expect(asked({ from: "2026-11-01", until: "2026-11-30T09:30" }, "Europe/Zurich")).toEqual({
    page_size: 50,
    start: "2026-10-31T23:00:00.000Z",
    end: "2026-11-30T08:30:00.000Z",
  });
  expect(asked({ from: "yesterday", until: "2026-13-45T00:00" }, "UTC")).toEqual({ page_size: 50 });
});

test("what the address names is asked for", () => {
  expect(asked({ customer: "acme", type: "call", key: "a/b", page: "token" }, "UTC")).toEqual({
    page_size: 50,
    customer: "acme",
    event_type: "call",
    idempotency_key: "a/b",
    page_token: "token",
  });
});

test("only the newest events are read again by themselves", () => {
  expect([{}, { customer: "acme" }, { from: "2026-11-01" }].map(isLive)).toEqual([true, true, true]);
  expect([{ page: "token" }, { until: "2026-11-01" }, { paused: "yes" }, { key: "a" }].map(isLive)).toEqual([false, false, false, false]);
});
