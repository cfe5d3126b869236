import { screen, waitFor } from "@testing-library/react";
import { expect, test } from "vitest";
import { answers, asked, customers, list, open, press, problem, sent, session, type } from "../../testing";

const own = { version: 3, base_price: 25, included_units: 0, overage_rate: 0.5, model: "overage", description: "", currency: "CHF", effective_from: "2026-11-01T00:00:00Z", created_at: "2026-11-01T00:00:00Z" };
const ended = { ...own, version: 4, base_price: 0, overage_rate: 0, currency: "", inherits: true, effective_from: "2026-11-02T00:00:00Z" };
const meter = { id: "mtr_1", slug: "calls", name: "", event_type: "call", aggregation: "sum", group_by: [], value_property: "", filters: [], unit: "", usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null };
const path = "/v1/customers/by-external-id/pricing/calls";
const pricing = (...versions: object[]) => ({ meter_id: "mtr_1", meter_slug: "calls", ...(versions.length === 1 && { current: own }), versions });

function customerWith(...versions: object[]) {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["customers:read", "meters:read", "pricing:read", "pricing:write"] }];
  answers["GET /v1/customers/by-id"] = () => [200, customers.data[0]!];
  answers["GET /v1/meters"] = () => [200, list(meter)];
  answers["GET /v1/meters/calls"] = () => [200, meter];
  answers["GET /v1/pricing"] = () => [200, list(pricing(...versions))];
  answers[`GET ${path}`] = () => [200, pricing(...versions)];
  answers["GET /v1/customers/by-external-id/plan"] = () => [200, { plan: null, versions: [] }];
  answers["GET /v1/meters/calls/pricing"] = () => [200, { meter_id: "mtr_1", meter_slug: "calls", versions: [] }];
}

test("a customer's own prices are listed in words", async () => {
  customerWith(own);
  open("/customers/cus_1/prices");
  expect((await screen.findByText(/per period,/)).textContent).toBe("25.00 CHF per period, 0.50 CHF a unit");
  expect(asked.find(({ name }) => name === "GET /v1/pricing")?.url).toContain("customer=contoso");
});

test("a customer's own price is set on the customer's screen", async () => {
  customerWith();
  answers[`PUT ${path}`] = () => [200, pricing(own)];
  open("/customers/cus_1/prices/calls");
  await screen.findByText("The price of the customer's plan or the meter's own price is charged.");
  await screen.findByLabelText("Overage rate");
  type("Overage rate", "0.5");
  await press("Set the price");
  await waitFor(() => expect(sent(`PUT ${path}`)).toEqual([{ model: "overage", overage_rate: 0.5, currency: "CHF" }]));
  expect(asked.find(({ name }) => name === `PUT ${path}`)?.url).toContain("external_id=contoso");
});

test("the form of a customer's first own price has the currency of the meter's price", async () => {
  const current = { ...own, currency: "EUR" };
  customerWith();
  answers["GET /v1/meters/calls/pricing"] = () => [200, { meter_id: "mtr_1", meter_slug: "calls", current, versions: [current] }];
  open("/customers/cus_1/prices/calls");
  expect((await screen.findByLabelText<HTMLInputElement>("Currency")).value).toBe("EUR");
});

test("the form of a customer's first own price has the currency of the plan's price", async () => {
  const current = { ...own, currency: "GBP" };
  customerWith();
  answers["GET /v1/customers/by-external-id/plan"] = () => [200, { plan: "pro", versions: [] }];
  answers["GET /v1/plans/pro/pricing/calls"] = () => [200, { meter_id: "mtr_1", meter_slug: "calls", current, versions: [current] }];
  open("/customers/cus_1/prices/calls");
  expect((await screen.findByLabelText<HTMLInputElement>("Currency")).value).toBe("GBP");
});

test("a customer's own price ends after the user confirms the effect", async () => {
  customerWith(own);
  answers[`POST ${path}/end`] = (body) => {
    if (JSON.parse(body).confirm === "token-1") return [200, pricing(own, ended)];
    const [status, refused] = problem(409, "The price changes bills");
    const confirmation = { token: "token-1", customers: 1, periods: [], changes: [], uncounted: [], as_of: "2026-11-12T09:30:00Z" };
    return [status, { ...refused, code: "confirmation_required", confirmation }];
  };
  open("/customers/cus_1/prices/calls");
  await press("End the own price");
  answers[`GET ${path}`] = () => [200, pricing(own, ended)];
  await press("Change the bills");
  await screen.findByText("no own price: the price of the plan or the meter applies");
  expect(sent(`POST ${path}/end`)).toEqual([{}, { confirm: "token-1" }]);
  expect(screen.queryByRole("button", { name: "End the own price" })).toBeNull();
});
