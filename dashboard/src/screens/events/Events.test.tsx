import { act, fireEvent, screen, waitFor } from "@testing-library/react";
import { LosslessNumber } from "lossless-json";
import { expect, test } from "vitest";
import { queries, router } from "../../router";
import { answers, asked, open, press, session, type } from "../../testing";

const event = (id: string, more = {}) => ({
  id,
  event_type: `call-${id}`,
  customer_id: "acme",
  timestamp: "2026-11-23T10:00:00Z",
  ingested_at: "2026-11-23T10:00:01Z",
  value: 1,
  idempotency_key: null,
  properties: {},
  counted_by: [],
  ...more,
});

function lists(...ids: string[]) {
  answers["GET /v1/events"] = () => [200, { data: ids.map((id) => event(id)), has_more: false, next_page_token: null, searched_until: "2026-11-22T10:00:00Z" }];
}

const readAgain = () => queries.invalidateQueries({ queryKey: ["events"] });
const shown = () => screen.getAllByRole("button", { name: /^call-/ }).map((row) => row.textContent);

test("new events appear on top, and only at a button while an event is opened", async () => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["events:read"] }];
  lists("b", "a");
  open("/events");
  await screen.findByRole("button", { name: "call-b" });
  lists("c", "b", "a");
  await readAgain();
  await waitFor(() => expect(shown()).toEqual(["call-c", "call-b", "call-a"]));

  await press("call-a");
  await screen.findByText("Properties");
  lists("e", "d", "c", "b", "a");
  await readAgain();
  await screen.findByRole("button", { name: "Show 2 new events" });
  expect(shown()).toEqual(["call-c", "call-b", "call-a"]);
  await press("Show 2 new events");
  expect(shown()).toEqual(["call-e", "call-d", "call-c", "call-b", "call-a"]);
  expect(await screen.findByText("Properties")).toBeTruthy();
});

test("a search without a result so far shows how far back it has searched, and can continue", async () => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["events:read"] }];
  answers["GET /v1/events"] = () => [200, { data: [], has_more: true, next_page_token: "further", searched_until: "2026-11-22T10:00:00Z" }];
  open("/events");
  await screen.findByRole("heading", { name: "No matching event so far" });
  type("Event type", "rare");
  type("From", "2026-01-01T09:30");
  await press("Search");
  await waitFor(() => expect(router.state.location.search).toEqual({ type: "rare", from: "2026-01-01T09:30" }));
  expect((await screen.findByText(/Searched back to/)).textContent).toContain("22 Nov 2026, 11:00");
  lists("old");
  fireEvent.click(await screen.findByRole("link", { name: "Search further back" }));
  await screen.findByRole("button", { name: "call-old" });
  expect(new URL(asked.at(-1)?.url ?? "").searchParams.get("page_token")).toBe("further");
  expect(new URL(asked.at(-1)?.url ?? "").searchParams.get("start")).toBe("2026-01-01T08:30:00.000Z");
});

test("an event shows the meters that have counted it, each with the billing period", async () => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["events:read"] }];
  const period = { id: "per_1", start: "2026-10-31T23:00:00Z", end: "2026-11-30T23:00:00Z" };
  const counted = event("a", { properties: { model: "large", account: new LosslessNumber("1234567890123456789") }, counted_by: [{ meter_slug: "calls", late: true, period }, { meter_slug: "all-calls", late: false, period }] });
  answers["GET /v1/events"] = () => [200, { data: [counted], has_more: false, next_page_token: null, searched_until: "2026-11-22T10:00:00Z" }];
  open("/events?event=a");
  await screen.findByText("Properties");
  expect(screen.getAllByRole("listitem").map(({ textContent }) => textContent)).toEqual([
    "calls, after the period 1 – 30 Nov 2026 was closed: late usage",
    "all-calls, in the period 1 – 30 Nov 2026",
  ]);
  await screen.findByText(/"account": 1234567890123456789 }/);
});

test("a search for a key has no start, so that it searches all stored events", async () => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["events:read"] }];
  answers["GET /v1/events"] = () => [200, { data: [event("old", { idempotency_key: "order-7" })], has_more: false, next_page_token: null, searched_until: "2026-01-01T00:00:00Z" }];
  open("/events?key=order-7");
  await screen.findByRole("button", { name: "call-old" });
  const query = new URL(asked.at(-1)?.url ?? "").searchParams;
  expect([query.get("idempotency_key"), query.get("start")]).toEqual(["order-7", null]);
  lists();
  act(() => router.history.push("/events?key=order-8"));
  await screen.findByRole("heading", { name: "No event has this key" });
});

test("a search without a result names the searched range, and offers a wider one", async () => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["events:read"] }];
  lists();
  open("/events?type=rare");
  await screen.findByRole("heading", { name: "No matching event in the last 24 hours" });
  fireEvent.click(await screen.findByRole("link", { name: "30 days" }));
  await screen.findByRole("heading", { name: "No matching event in this time range" });
  expect(new URL(asked.at(-1)?.url ?? "").searchParams.get("start")).not.toBeNull();
});
