import { screen, waitFor } from "@testing-library/react";
import { expect, test } from "vitest";
import { answers, asked, open, press, sent, session, type } from "../../testing";
import { monthBefore } from "./lastMonth";

const price = { version: 1, base_price: 25, included_units: 0, overage_rate: 0.5, model: "overage", description: "", currency: "CHF", effective_from: null, created_at: "2026-11-01T00:00:00Z" };
const meter = { id: "mtr_1", slug: "calls", name: "", event_type: "call", aggregation: "sum", group_by: [], value_property: "", filters: [], unit: "calls", usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null };

/** Opens a price with last month's usage by customer. A new price charges 2 CHF per unit, the current price 1 CHF. */
function priced(path: string, address: string, ...rows: object[]) {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["meters:read", "pricing:read", "pricing:write", "usage:read"] }];
  answers["GET /v1/meters"] = () => [200, { data: [meter], has_more: false, next_page_token: null }];
  answers["GET /v1/meters/calls"] = () => [200, meter];
  answers[`GET ${path}`] = () => [200, { meter_id: "mtr_1", meter_slug: "calls", current: price, versions: [price] }];
  answers["GET /v1/usage/breakdown"] = () => [200, { meter: "calls", period: { start: "2026-10-01T00:00:00Z", end: "2026-11-01T00:00:00Z" }, total: 1, data: rows, has_more: false, next_page_token: null }];
  answers["POST /v1/pricing/calculate"] = (body) => {
    const { usage, overage_rate } = JSON.parse(body);
    const rate = overage_rate === 0.5 ? 1 : 2;
    return [200, { currency: "CHF", charges: usage.map(({ quantity }: { quantity: number }) => ({ quantity, event_count: 0, charge: Math.round(quantity * rate), steps: [] })) }];
  };
  open(address);
}

test("last month's customers are points of the curve, with their charges at the current and the typed price", async () => {
  priced("/v1/meters/calls/pricing", "/meters/calls/prices", { customer: "acme", value: 900.5 }, { customer: "contoso", value: 100 }, { customer: "initech", value: 100 }, { customer: "quiet", value: 0 }, { other: true, value: 7 });
  await screen.findByText("lines: New price, Price now up to 1000");
  await screen.findByText("acme: 900.5 calls, 901.00 CHF, now 901.00 CHF");
  type("Overage rate", "0.75");
  await screen.findByText("acme: 900.5 calls, 1,801.00 CHF, now 901.00 CHF");
  screen.getByText("contoso and 1 more: 100 calls, 200.00 CHF, now 100.00 CHF");
  expect(screen.queryByText(/quiet/)).toBeNull();
  screen.getByText(/Only those of the 100 customers with the highest usage are shown/);
  const query = new URL(asked.find(({ name }) => name === "GET /v1/usage/breakdown")!.url).searchParams;
  const { start, end } = monthBefore(new Date(), "Europe/Zurich");
  expect([query.get("meter"), query.get("limit"), query.get("start"), query.get("end")]).toEqual(["calls", "100", start, end]);
  for (const { usage, steps } of sent("POST /v1/pricing/calculate").filter(({ steps }) => !steps)) {
    expect(usage.length).toBeLessThanOrEqual(100);
    expect(steps).toBe(false);
  }
});

test("the curve of a plan's price has only the plan's customers as points", async () => {
  answers["GET /v1/plans/pro"] = () => [200, { id: "pln_1", slug: "pro", name: "Pro", created_at: "2026-11-01T00:00:00Z", archived_at: null }];
  priced("/v1/plans/pro/pricing/calls", "/meters/-/plans/pro/prices/calls", { customer: "acme", plan: "pro", value: 40 }, { customer: "contoso", plan: "", value: 4000 });
  await screen.findByText("acme: 40 calls, 40.00 CHF, now 40.00 CHF");
  expect(screen.queryByText(/contoso/)).toBeNull();
});

test("a curve without usage shows the tiers, and an incomplete price has no curve", async () => {
  priced("/v1/meters/calls/pricing", "/meters/calls/prices");
  await screen.findByText(/No customer has usage last month/);
  type("Model", "volume");
  await waitFor(() => expect(screen.queryByText(/^lines/)).toBeNull());
  await press("Add a tier");
  type("Tier 1: up to", "2000");
  type("Tier 1: unit price", "1");
  type("Tier 2: unit price", "0.5");
  await screen.findByText("lines: New price, Price now up to 4400");
});

test("last month is the calendar month before now in the timezone", () => {
  expect(monthBefore(new Date("2026-03-31T23:30:00Z"), "Europe/Zurich")).toEqual({ start: "2026-02-28T23:00:00.000Z", end: "2026-03-31T22:00:00.000Z" });
  expect(monthBefore(new Date("2026-01-15T00:00:00Z"), "UTC")).toEqual({ start: "2025-12-01T00:00:00.000Z", end: "2026-01-01T00:00:00.000Z" });
});
