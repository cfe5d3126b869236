import { screen, waitFor } from "@testing-library/react";
import { expect, test } from "vitest";
import { answers, asked, open, press, problem, session, type } from "../../testing";

const price = { version: 1, base_price: 25, included_units: 1000, overage_rate: 0.02, currency: "CHF", effective_from: null, created_at: "2026-11-01T00:00:00Z" };
const meter = { id: "mtr_1", slug: "calls", name: "", event_type: "call", aggregation: "sum", group_by: [], usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null };
const preview = { effective_from: "2026-10-31T23:00:00Z", changes: [{ currency: "CHF", before: 30, after: 40, customers: 2 }], if_in_force: [] };

function priced() {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["meters:read", "pricing:read", "pricing:write"] }];
  answers["GET /v1/meters/calls"] = () => [200, meter];
  answers["GET /v1/meters/calls/pricing"] = () => [200, { meter_id: "mtr_1", meter_slug: "calls", current: price, versions: [price] }];
  answers["POST /v1/meters/calls/pricing/preview"] = () => [200, preview];
  open("/meters/calls/prices");
  return screen.findByRole("heading", { name: "Set another price" });
}

const sent = (name: string) => asked.filter((request) => request.name === name).map(({ body }) => body);

test("a price is previewed before it is set, and anew when it is changed", async () => {
  await priced();
  type("Overage rate", "0.1234567890123456789");
  press("Preview the running bills");
  expect((await screen.findByText("Of the bills that run, as of now, it changes:")).parentElement?.textContent).toContain("30.00 CHF → 40.00 CHF, 2 customers");
  expect(sent("POST /v1/meters/calls/pricing/preview")).toEqual(['{"base_price":25,"included_units":1000,"overage_rate":0.1234567890123456789,"currency":"CHF"}']);
  expect(sent("PUT /v1/meters/calls/pricing")).toEqual([]);
  type("Overage rate", "0.03");
  expect(screen.queryByText("Of the bills that run, as of now, it changes:")).toBeNull();
});

test("a price from a day that has been is set once somebody has seen what it changes", async () => {
  await priced();
  answers["PUT /v1/meters/calls/pricing"] = (body) => {
    if (JSON.parse(body).confirm_retroactive) return [200, { meter_id: "mtr_1", meter_slug: "calls", versions: [price] }];
    const [status, refused] = problem(422, "body.effective_from is in other words");
    return [status, { ...refused, errors: [{ location: "body.effective_from", message: "is in other words", code: "retroactive" }] }];
  };
  type("Holds", "day");
  press("Preview the running bills");
  expect(screen.queryByRole("alert")).toBeNull();
  type("Day", "2026-11-01");
  press("Set the price");
  await screen.findByText(/It holds for billing periods that run already/);
  await screen.findByText("Of the bills that run, as of now, it changes:");
  press("Set it all the same");
  await waitFor(() => expect(screen.queryByText(/It holds for billing periods that run already/)).toBeNull());
  const bodies = sent("PUT /v1/meters/calls/pricing").map((body) => JSON.parse(body));
  expect(bodies.map((body) => [body.effective_from, body.confirm_retroactive])).toEqual([
    ["2026-10-31T23:00:00.000Z", undefined],
    ["2026-10-31T23:00:00.000Z", true],
  ]);
});

for (const written of ["1,000.50", "12,50"]) {
  test(`a price that is written as ${written} is marked, and not sent`, async () => {
    await priced();
    type("Base price", written);
    press("Set the price");
    await screen.findByText("Write 1000.50: no thousands separators, a point for decimals");
    const field = screen.getByLabelText<HTMLInputElement>("Base price");
    expect(field.getAttribute("aria-invalid")).toBe("true");
    expect(document.activeElement).toBe(field);
    press("Preview the running bills");
    expect(asked.some(({ body }) => body !== "")).toBe(false);
    expect(screen.queryByText(/could not be reached/)).toBeNull();
    type("Base price", "1000.50");
    expect(screen.queryByText(/no thousands separators/)).toBeNull();
    answers["PUT /v1/meters/calls/pricing"] = () => [200, { meter_id: "mtr_1", meter_slug: "calls", versions: [price] }];
    press("Set the price");
    await waitFor(() => expect(sent("PUT /v1/meters/calls/pricing")).toHaveLength(1));
    expect(sent("PUT /v1/meters/calls/pricing")[0]).toContain('"base_price":1000.50,');
  });
}
