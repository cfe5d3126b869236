import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { expect, test } from "vitest";
import { router } from "../../router";
import { answers, asked, open, press, sent, session, type } from "../../testing";

const none = { accepted: 0, duplicates: 0, conflicts: 0, rejected: 0, rejections: [], windows: [] };
const rejections = [{ code: "timestamp_too_old", count: 2 }];
const counts = { ...none, accepted: 8, rejected: 2, rejections, windows: [{ start: "2026-11-22T23:00:00Z", end: "2026-11-23T23:00:00Z", accepted: 8, duplicates: 0, conflicts: 0, rejected: 2, rejections }] };

test("rejected events are shown with their reasons, for the number of days in the address", async () => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["events:read"] }];
  answers["GET /v1/events/counts"] = () => [200, counts];
  open("/events/rejected?days=7");
  await screen.findByText("timestamp_too_old");
  expect(await screen.findByText(/^timestamp is more than five years in the past/)).toBeTruthy();
  expect(await screen.findByText("rejected, 20 % of all")).toBeTruthy();
  expect((await screen.findByText("timestamp_too_old 2")).closest("tr")?.textContent).toContain("Mon 23 Nov");
  const query = new URL(asked.find(({ name }) => name === "GET /v1/events/counts")!.url).searchParams;
  expect(query.get("granularity")).toBe("day");
  expect(Date.now() - Date.parse(query.get("start")!)).toBeLessThanOrEqual(7 * 86_400_000 + 3_600_000);
});

test("the address of an event finds the event by its customer and time", async () => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["events:read"] }];
  const event = { id: "e1", event_type: "call", customer_id: "acme", timestamp: "2026-11-23T10:00:00.123456Z", ingested_at: "2026-11-23T10:00:01Z", value: 1.5, idempotency_key: "k", properties: {}, counted_by: [] };
  answers["GET /v1/events"] = () => [200, { data: [{ ...event, id: "e0" }, event], has_more: false, next_page_token: null, searched_until: "2026-11-23T10:00:00Z" }];
  open("/events/e1?customer=acme&at=2026-11-23T10:00:00.123456Z");
  await screen.findByText("1.5");
  expect(screen.getAllByText("k")).toHaveLength(1);
  const query = new URL(asked.find(({ name }) => name === "GET /v1/events")!.url).searchParams;
  expect([query.get("customer"), query.get("start"), query.get("end")]).toEqual(["acme", "2026-11-23T10:00:00.123456Z", "2026-11-23T10:00:00.124Z"]);
  router.history.push("/events/e1");
  await waitFor(() => screen.getByRole("heading", { name: "The event was not found" }));
});

test("a conflict is shown above the stored event with the same key, and can be dismissed", async () => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["events:read", "billing:write"] }];
  const sentEvent = (id: string, customer: string) => ({ id, event_type: "call", customer_id: customer, timestamp: "2026-11-23T10:00:00Z", value: "1.5", idempotency_key: "order-7", properties: {} });
  answers["GET /v1/events/conflicts"] = () => [200, { data: [{ ...sentEvent("c1", "bob"), received_at: "2026-11-23T10:00:01Z" }], has_more: false, next_page_token: null }];
  answers["GET /v1/events"] = () => [200, { data: [{ ...sentEvent("e1", "acme"), ingested_at: "2026-11-22T10:00:01Z", counted_by: [] }], has_more: false, next_page_token: null, searched_until: "2026-11-22T10:00:00Z" }];
  answers["POST /v1/events/conflicts/c1/dismiss"] = () => [200, {}];
  open("/events/conflicts");
  await screen.findByText("bob");
  expect(asked.some(({ name }) => name === "GET /v1/events")).toBe(false);
  await press("Find it: the event that was stored under order-7");
  const rows = () => screen.getAllByRole("row").map(({ textContent }) => textContent ?? "");
  await waitFor(() => expect(rows().some((row) => row.includes("acme"))).toBe(true));
  expect(rows().findIndex((row) => row.includes("bob"))).toBeLessThan(rows().findIndex((row) => row.includes("acme")));
  await press("Dismiss order-7");
  const dialog = within(await screen.findByRole("dialog"));
  type("Reason, for the audit log", "sent again");
  fireEvent.click(dialog.getByRole("button", { name: "Dismiss order-7" }));
  await waitFor(() => expect(sent("POST /v1/events/conflicts/c1/dismiss")).toEqual([{ reason: "sent again" }]));
});
