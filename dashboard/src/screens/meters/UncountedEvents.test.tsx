import { screen, waitFor } from "@testing-library/react";
import { LosslessNumber } from "lossless-json";
import { expect, test } from "vitest";
import { answers, asked, list, open, session, type } from "../../testing";

const meter = { id: "mtr_1", slug: "tokens", name: "Tokens", event_type: "llm", aggregation: "sum", group_by: [], value_property: "usage.total", filters: [], unit: "", usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null };
const event = { id: "e1", event_type: "llm", customer_id: "acme", timestamp: "2026-11-23T10:00:00Z", ingested_at: "2026-11-23T10:00:01Z", value: 1, idempotency_key: "k", properties: { usage: { total: "many" } }, counted_by: [{ meter_slug: "cost", late: false }], rule: "value_invalid" };
const path = "GET /v1/meters/tokens/uncounted-events";

function openWith(address: string, ...permissions: string[]) {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["meters:read", ...permissions] }];
  answers["GET /v1/meters/tokens"] = () => [200, meter];
  open(address);
}

const queries = () => asked.filter(({ name }) => name === path).map(({ url }) => new URL(url).searchParams);

test("the uncounted events of a meter are listed with the reason, the sent value and a link", async () => {
  answers[path] = () => [200, list(event, { ...event, id: "e2", properties: {}, counted_by: [], rule: "value_missing" })];
  openWith("/meters/tokens/uncounted-events", "events:read");
  const row = (await screen.findByText('"many"')).closest("tr")!;
  expect(row.textContent).toContain("Not a number with an absolute value below 10^18");
  expect(row.textContent).toContain("cost");
  expect(row.querySelector("a")!.getAttribute("href")).toBe("/events/e1?customer=acme&at=2026-11-23T10%3A00%3A00Z");
  await screen.findByRole("columnheader", { name: "usage.total" });
  const missing = screen.getAllByRole("row").at(-1)!;
  expect(missing.textContent).toContain("Missing or null");
  expect(missing.textContent).toContain("none");
  await screen.findByText(/the same timestamp and a new idempotency key/);
});

test("a number in a sent value keeps every digit", async () => {
  answers[path] = () => [200, list({ ...event, properties: { usage: { total: [new LosslessNumber("1234567890123456789")] } } })];
  openWith("/meters/tokens/uncounted-events", "events:read");
  await screen.findByText("[1234567890123456789]");
});

test("the list of uncounted events can be filtered by rule, and has pages", async () => {
  answers[path] = () => [200, { ...list(event), has_more: true, next_page_token: "token-2" }];
  openWith("/meters/tokens/uncounted-events?page=token-1", "events:read");
  await screen.findByText('"many"');
  expect(queries().some((query) => query.get("page_token") === "token-1")).toBe(true);
  expect((await screen.findByText("Next page")).getAttribute("href")).toContain("page=token-2");
  type("Problem", "value_invalid");
  await waitFor(() => expect(queries().some((query) => query.get("rule") === "value_invalid" && !query.has("page_token"))).toBe(true));
});

test("the tab leads to the uncounted events of a meter that reads a property", async () => {
  openWith("/meters/tokens/details", "events:read");
  expect((await screen.findByText("Uncounted events")).getAttribute("href")).toBe("/meters/tokens/uncounted-events");
  expect(queries()).toHaveLength(0);
});

test.each([
  ["a meter that reads the values of events", { value_property: "" }, ["events:read"]],
  ["a member without events:read", {}, []],
])("the tab is not shown for %s", async (_, part, permissions) => {
  openWith("/meters/tokens/details", ...permissions);
  answers["GET /v1/meters/tokens"] = () => [200, { ...meter, ...part }];
  await screen.findByText("mtr_1");
  expect(screen.queryByText("Uncounted events")).toBeNull();
});
