import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { router } from "../../router";
import { answers, asked, list, open, press, sent, session, type } from "../../testing";

const meter = { id: "mtr_1", slug: "tokens", name: "", event_type: "call", aggregation: "sum", group_by: ["model"], value_property: "", filters: [], unit: "tokens", usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null };
const budget = { id: "alt_1", name: "Budget", type: "usage", customer: "contoso", all: false, meter: "tokens", group: { model: "large" }, thresholds: [800, 1000.5], enabled: true, created_at: "2026-11-01T00:00:00Z" };
const quiet = { id: "alt_2", name: "Quiet", type: "silence", all: true, thresholds: [], minutes: 60, enabled: false, created_at: "2026-11-01T00:00:00Z" };
const firing = { id: "fir_1", customer_id: "cus_1", customer_external_id: "contoso", threshold: 800, value: 812.5, late: true, occurred_at: "2026-11-20T10:00:00Z", period: { start: "2026-10-31T23:00:00Z", end: "2026-11-30T23:00:00Z" } };
const highest = {
  customer_id: "cus_1",
  customer_external_id: "contoso",
  quota_id: null,
  days: [
    { day: "2026-11-10", value: 640 },
    { day: "2026-11-11", value: 799.5 },
    { day: "2026-11-12", value: 812.5 },
  ],
};

const all = ["customers:read", "usage:read", "meters:read", "pricing:read", "billing:read", "alerts:read", "alerts:write"];
const permit = (permissions: string[]) => (answers["GET /v1/auth/session"] = () => [200, { ...session, permissions }]);

beforeEach(() => {
  permit(all);
  answers["GET /v1/meters"] = () => [200, list(meter)];
  answers["GET /v1/plans"] = () => [200, list({ id: "plan_1", slug: "pro", name: "Pro", features: {}, created_at: "2026-11-01T00:00:00Z", archived_at: null })];
  answers["GET /v1/alerts"] = () => [200, list(budget, quiet)];
  answers["GET /v1/alerts/alt_1"] = () => [200, budget];
  answers["GET /v1/alerts/alt_1/firings"] = () => [200, list(firing)];
  answers["GET /v1/alerts/alt_2/firings"] = () => [200, list()];
  answers["POST /v1/alerts/dry-run"] = () => [200, { customers: 1, more: false, highest, data: [{ customer_id: "cus_1", customer_external_id: "contoso", day: "2026-11-12", threshold: 800, value: 812.5, period: firing.period }] }];
});

const rows = async (name: string) => (await within(await screen.findByRole("table", { name })).findAllByRole("row")).slice(1).map((row) => within(row).getAllByRole("cell").map(({ textContent }) => textContent));
const requests = (name: string) => asked.filter((one) => one.name === name).map(({ body }) => body);

test("the alerts are listed with their condition and last firing", async () => {
  open("/alerts");
  await screen.findByText("never");
  await screen.findByText("contoso", { selector: ".muted" });
  const [first, second] = await rows("The alerts");
  expect(first!.slice(0, 3)).toEqual(["Budget", "usage of tokens (large) reaches 800 or 1,000.5", "contoso"]);
  expect(second).toEqual(["Quiet", "no event for 60 minutes", "all customers", "never", "disabled"]);
});

test("an alert is created for the customers of a plan", async () => {
  answers["POST /v1/alerts"] = () => [201, budget];
  open("/alerts/new");
  fireEvent.change(await screen.findByLabelText("Name"), { target: { value: "Budget" } });
  type("Customers", "plan");
  await screen.findByRole("option", { name: "Pro" });
  type("Plan", "pro");
  type("Type", "spend");
  type("Thresholds", "100\n0.1234567890123456789\n");
  await press("Create the alert");
  await waitFor(() => expect(router.state.location.href).toBe("/alerts/alt_1"));
  expect(requests("POST /v1/alerts")).toEqual(['{"name":"Budget","type":"spend","plan":"pro","thresholds":[100,0.1234567890123456789]}']);
});

test("thresholds with thousands separators are not sent", async () => {
  open("/alerts/new");
  await screen.findByRole("option", { name: "tokens" });
  fireEvent.change(await screen.findByLabelText("Name"), { target: { value: "Budget" } });
  type("Type", "spend");
  type("Thresholds", "1,000");
  await press("Create the alert");
  await screen.findByText(/one per line, without thousands separators/);
  expect(requests("POST /v1/alerts")).toEqual([]);
});

test("a trial draws the values of each day with the thresholds, and lists the days of the dry run", async () => {
  open("/alerts/alt_1");
  fireEvent.click(await screen.findByRole("button", { name: "Try the alert" }));
  await screen.findByText("Usage since the start of the billing period: contoso: 640 799.5 812.5 of 800 1000.5");
  expect(await rows("The days on which the alert would have fired")).toEqual([["Thu 12 Nov", "contoso", "800 tokens", "812.5 tokens"]]);
  expect(requests("POST /v1/alerts/dry-run")).toEqual(['{"name":"Trial","type":"usage","customer":"contoso","meter":"tokens","group":{"model":"large"},"thresholds":[800,1000.5]}']);
  type("Thresholds", "900");
  expect(screen.queryByText(/would have fired once/)).toBeNull(); // that result was for other thresholds
});

test.each([
  { type: "spend", currency: "USD", thresholds: [800, 1000.5], title: "Estimated charge of the billing period" },
  { type: "quota", thresholds: [80, 100], title: "Share of the quota that is used" },
])("a trial of all customers draws the customer with the highest value: $type", async ({ title, thresholds, ...more }) => {
  answers["GET /v1/alerts/alt_1"] = () => [200, { ...budget, ...more, thresholds, customer: undefined, group: undefined, all: true }];
  open("/alerts/alt_1");
  fireEvent.click(await screen.findByRole("button", { name: "Try the alert" }));
  await screen.findByText(`${title}: contoso: 640 799.5 812.5 of ${thresholds.join(" ")}`);
  await screen.findByText("This customer has the highest value.");
});

test("a trial without a value has no chart", async () => {
  answers["POST /v1/alerts/dry-run"] = () => [200, { customers: 1, more: false, highest: null, data: [] }];
  open("/alerts/alt_1");
  fireEvent.click(await screen.findByRole("button", { name: "Try the alert" }));
  await screen.findByText(/would not have fired/);
  expect(screen.queryByText(/contoso: 640/)).toBeNull();
});

test("an alert is changed, disabled and deleted, and its firings are listed", async () => {
  answers["PATCH /v1/alerts/alt_1"] = () => [200, budget];
  answers["DELETE /v1/alerts/alt_1"] = () => [200, { id: "alt_1", deleted: true }];
  open("/alerts/alt_1");
  await waitFor(async () => expect(await rows("The firings")).toEqual([["20 Nov 2026, 11:00", "contoso", "800 tokens", "812.5 tokens", "1 – 30 Nov 2026 after its end"]]));
  type("Thresholds", "900");
  await press("Save the alert");
  await waitFor(() => expect(requests("PATCH /v1/alerts/alt_1")).toEqual(['{"name":"Budget","thresholds":[900]}']));
  await press("Disable alert Budget");
  fireEvent.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Disable alert Budget" }));
  await waitFor(() => expect(sent("PATCH /v1/alerts/alt_1").at(-1)).toEqual({ enabled: false }));
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  await press("Delete alert Budget");
  fireEvent.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Delete alert Budget" }));
  await waitFor(() => expect(router.state.location.href).toBe("/alerts"));
});

test("a role without alerts:write sees an alert and cannot delete it", async () => {
  permit(["alerts:read"]);
  open("/alerts/alt_1");
  expect((await screen.findByRole("button", { name: "Delete alert Budget" })).title).toContain("alerts:write");
});

const share = { id: "alt_3", name: "Share", type: "quota", all: true, meter: "tokens", thresholds: [80, 100], enabled: true, created_at: "2026-11-01T00:00:00Z" };

test("an alert of quotas has percentages, and its firings have the period of the quota", async () => {
  answers["GET /v1/alerts/alt_3"] = () => [200, share];
  const lifetime = { ...firing, id: "fir_2", quota_id: "quo_2", threshold: 80, value: 81.25, late: false, period: { start: "0001-02-01T00:00:00Z", end: "9999-01-01T00:00:00Z" } };
  answers["GET /v1/alerts/alt_3/firings"] = () => [200, list(lifetime)];
  answers["PATCH /v1/alerts/alt_3"] = () => [200, share];
  open("/alerts/alt_3");
  await screen.findByText("in total");
  screen.getByText(/quotas of tokens reach 80 or 100 %/);
  expect((await rows("The firings"))[0]!.slice(2)).toEqual(["80 %", "81.25 %", "in total "]);
  for (const wrong of ["80.125", "1000.01"]) {
    type("Thresholds in percent", wrong);
    await press("Save the alert");
    await screen.findByText("Must be percentages of at most 1000 with at most 2 decimals");
  }
  type("Thresholds in percent", "50.25");
  await press("Save the alert");
  await waitFor(() => expect(requests("PATCH /v1/alerts/alt_3")).toEqual(['{"name":"Share","thresholds":[50.25]}']));
});

test("an alert of the quotas of one group is created", async () => {
  answers["POST /v1/alerts"] = () => [201, share];
  open("/alerts/new");
  fireEvent.change(await screen.findByLabelText("Name"), { target: { value: "Share" } });
  type("Type", "quota");
  await screen.findByRole("option", { name: "tokens" });
  type("Meter", "tokens");
  type("Usage", "group");
  type("Value of model", "large");
  type("Thresholds in percent", "80");
  await press("Create the alert");
  await waitFor(() => expect(requests("POST /v1/alerts")).toEqual(['{"name":"Share","type":"quota","all":true,"meter":"tokens","group":{"model":"large"},"thresholds":[80]}']));
});

test("a role without billing:read sees no charges of spend alerts", async () => {
  permit(all.filter((one) => one !== "billing:read"));
  const spend = { id: "alt_4", name: "Spend", type: "spend", all: true, thresholds: [5], currency: "USD", enabled: true, created_at: "2026-11-01T00:00:00Z" };
  answers["GET /v1/alerts"] = () => [200, list(spend)];
  answers["GET /v1/alerts/alt_4"] = () => [200, spend];
  open("/alerts");
  await screen.findByText("hidden");
  fireEvent.click(screen.getByRole("link", { name: "Spend" }));
  await screen.findByText("A spend alert shows charges. The permission billing:read is required.");
  expect(screen.getByRole("button", { name: "Try the alert" }).title).toContain("billing:read");
  expect(requests("GET /v1/alerts/alt_4/firings")).toEqual([]);
});
