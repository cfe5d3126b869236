import { expect, test } from "vitest";
import { eventQuery, isLive } from "./filter";

test("times are in the tenant's timezone, and a day means its start", () => {
  expect(eventQuery({ from: "2026-11-01", until: "2026-11-30T09:30" }, "Europe/Zurich")).toEqual({
    page_size: 50,
    start: "2026-10-31T23:00:00.000Z",
    end: "2026-11-30T08:30:00.000Z",
  });
  expect(eventQuery({ from: "yesterday", until: "2026-13-45T00:00" }, "UTC")).toEqual({ page_size: 50 });
});

test("the parameters of the address are the parameters of the request", () => {
  expect(eventQuery({ customer: "acme", type: "call", key: "a/b", page: "token" }, "UTC")).toEqual({
    page_size: 50,
    customer: "acme",
    event_type: "call",
    idempotency_key: "a/b",
    page_token: "token",
  });
});

test("only the list of the newest events is refreshed automatically", () => {
  expect([{}, { customer: "acme" }, { from: "2026-11-01" }].map(isLive)).toEqual([true, true, true]);
  expect([{ page: "token" }, { until: "2026-11-01" }, { paused: "yes" }, { key: "a" }].map(isLive)).toEqual([false, false, false, false]);
});
