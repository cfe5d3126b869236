import { screen, waitFor, within } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { queries, router } from "../../router";
import { answers, list, open, press, sent, session, type } from "../../testing";

beforeEach(() => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, workflows_url: "https://temporal.example.com/workflows", permissions: ["billing:read", "billing:write"] }];
});

const run = (id: string, more: object) => ({
  id,
  customer_id: "cus_1",
  customer_name: "Contoso",
  external_id: "contoso",
  trigger: "manual",
  requested_at: "2026-11-01T00:00:00Z",
  started_at: "2026-11-01T00:00:01Z",
  finished_at: "2026-11-01T00:00:02Z",
  error: "",
  last_error: "",
  lines: [],
  excluded: [],
  ...more,
});

test("a failed sync can be requested again, and the new sync is shown", async () => {
  answers["GET /v1/billing/syncs/old"] = () => [200, run("old", { status: "failed", error: "Stripe refused the key" })];
  answers["GET /v1/billing/syncs/new"] = () => [200, run("new", { status: "succeeded" })];
  answers["POST /v1/billing/sync"] = () => [200, run("new", { status: "succeeded" })];
  open("/billing/syncs/old");
  await screen.findByText("Stripe refused the key");
  await press("Sync again");
  await waitFor(() => expect(router.state.location.pathname).toBe("/billing/syncs/new"));
  expect(sent("POST /v1/billing/sync")).toEqual([{ customer_external_id: "contoso" }]);
  await screen.findByText("There was nothing new to report.");
  expect(screen.queryByRole("button", { name: "Sync again" })).toBeNull();
});

test("a sync lists each excluded meter with its reason and next step", async () => {
  const excluded = { meter_id: "mtr_1", meter_slug: "calls", reason: "invoice_final", message: "the period's invoice is final or is being finalized, and lacks some usage", next_step: "Wait: the next period bills the usage." };
  answers["GET /v1/billing/syncs/old"] = () => [200, run("old", { status: "succeeded", excluded: [excluded] })];
  open("/billing/syncs/old");
  const table = within(await screen.findByRole("table", { name: "Excluded meters" }));
  const row = table.getByText("The period's invoice is final or is being finalized, and lacks some usage").closest("tr") as HTMLElement;
  within(row).getByText("calls");
  within(row).getByText("Wait: the next period bills the usage.");
});

test("the breadcrumbs of a sync end with the id of the sync", async () => {
  answers["GET /v1/billing/syncs/old"] = () => [200, run("old", { status: "succeeded" })];
  open("/billing/syncs/old");
  const way = within(await screen.findByRole("navigation", { name: "You are here" }));
  expect(way.getAllByRole("listitem").map(({ textContent }) => textContent)).toEqual(["Billing", "Syncs", "old"]);
});

test("the results of Auto-Sync's runs are shown, and unknown if Temporal reports none", async () => {
  answers["GET /v1/billing/auto-sync"] = () => [
    200,
    {
      enabled: true,
      paused: false,
      schedule: "hourly",
      applied_at: "2026-11-01T00:00:00Z",
      next_runs: ["2026-11-01T03:00:00Z"],
      last_runs: [
        { workflow_id: "auto-sync/1-c", started_at: "2026-11-01T02:00:00Z", status: "running" },
        { workflow_id: "auto-sync/1-b", started_at: "2026-11-01T01:00:00Z", status: "succeeded", outcome: { customers: 1_204, reports: 1_190, failed: 2, busy: 1, closed: 7 } },
        { workflow_id: "auto-sync/1-a", started_at: "2026-11-01T00:00:00Z" },
      ],
    },
  ];
  open("/billing/auto-sync");
  const rows = within(await screen.findByRole("table", { name: "Latest runs" })).getAllByRole("row").slice(1);
  const said = rows.map((row) => within(row).getAllByRole("cell").slice(1, 6).map(({ textContent }) => textContent));
  expect(said).toEqual([
    ["running", "", "", "", ""],
    ["succeeded", "1,204", "1,190", "3", "7"],
    ["unknown", "", "", "", ""],
  ]);
});

test("a typed schedule stays when another user turns Auto-Sync on", async () => {
  const settings = { enabled: false, paused: false, schedule: "hourly", applied_at: null, next_runs: [], last_runs: [] };
  answers["GET /v1/billing/auto-sync"] = () => [200, settings];
  open("/billing/auto-sync");
  const schedule = await screen.findByLabelText<HTMLInputElement>("Schedule");
  type("Schedule", "daily");
  answers["GET /v1/billing/auto-sync"] = () => [200, { ...settings, enabled: true }];
  await queries.invalidateQueries({ queryKey: ["auto-sync"] });
  await waitFor(() => expect(screen.getByLabelText<HTMLInputElement>("Sync automatically").checked).toBe(true));
  expect(schedule.isConnected).toBe(true);
  expect(schedule.value).toBe("daily");
});

test("a discrepancy shows the totals and the events", async () => {
  answers["GET /v1/billing/discrepancies"] = () => [
    200,
    list({
      customer_external_id: "contoso",
      customer_id: "cus_1",
      customer_name: "Contoso",
      day: "2026-11-01",
      event_count: 12,
      events: "12.5",
      found_at: "2026-11-02T00:00:00Z",
      meter_id: "met_1",
      meter_slug: "calls",
      total: "11.5",
      total_count: 11,
    }),
  ];
  open("/billing/discrepancies");
  const row = (await screen.findByText("Contoso")).closest("tr") as HTMLElement;
  expect(within(row).getAllByRole("cell").slice(1, 6).map(({ textContent }) => textContent)).toEqual(["Contoso", "2026-11-01", "11.5", "12.5", "11 of 12"]);
});

test("unrated usage is summed by reason, and listed with its estimated charge", async () => {
  const line = { customer_id: "cus_1", external_id: "contoso", customer_name: "Contoso", meter_id: "mtr_1", meter_slug: "calls", usage: "60", event_count: 2 };
  const period = { start: "2026-10-01T00:00:00Z", end: "2026-11-01T00:00:00Z", state: "before" };
  const before = { reason: "before_first_period", message: "the usage is older than the customer's first billing period", next_step: "Bill the usage outside of Odometer." };
  const unpriced = { reason: "no_price", message: "neither the meter, the customer's plan nor the customer has a price", next_step: "Set a price." };
  answers["GET /v1/billing/unrated"] = () => [
    200,
    list({ ...line, ...before, period, estimate: "2.15", currency: "USD" }, { ...line, ...unpriced, period: { ...period, state: "in_grace" }, estimate: null, currency: null }),
  ];
  answers["GET /v1/billing/unrated/totals"] = () => [200, { since: "2026-09-01T00:00:00Z", caveat: "", data: [{ ...before, currency: "USD", customers: 1, lines: 1, estimate: "2.15" }] }];
  open("/billing/unrated");
  const totals = within(await screen.findByRole("table", { name: "Unrated usage by reason and currency" }));
  const total = totals.getByText("The usage is older than the customer's first billing period").closest("tr") as HTMLElement;
  within(total).getByText("2.15");
  within(total).getByText("Bill the usage outside of Odometer.");
  await screen.findByText("Neither the meter, the customer's plan nor the customer has a price");
  expect(screen.getAllByText("Bill the usage outside of Odometer.")).toHaveLength(1); // the lines do not repeat it
  expect((await screen.findByText("no price")).closest("tr")?.textContent).toContain("in grace");
});

test("a finding for a held invoice shows its next step", async () => {
  const reason = {
    code: "not_counted",
    message: "calls: the provider has accepted 100 units and has counted 90",
    next_step: "Wait for the provider's count.",
    meter_id: "mtr_1",
    meter_slug: "calls",
    ours: "100",
    theirs: "90",
  };
  const hold = {
    id: "hld_1",
    invoice_id: "in_1",
    customer_id: "cus_1",
    external_id: "contoso",
    customer_name: "Contoso",
    state: "disagrees",
    period: { start: "2026-10-01T00:00:00Z", end: "2026-11-01T00:00:00Z" },
    deadline: "2026-11-03T00:00:00Z",
    ended_at: null,
    looked_at: null,
    note: "",
    released_by: "",
    actions: [],
    reasons: [reason],
  };
  answers["GET /v1/billing/holds"] = () => [200, list(hold)];
  open("/billing/holds?hold=hld_1");
  const row = (await screen.findByText("calls: the provider has accepted 100 units and has counted 90")).closest("tr") as HTMLElement;
  within(row).getByText("Wait for the provider's count.");
  within(row).getByText("90");
});

test("a reconciliation shows the reason for a difference, and the next step until an operator decides", async () => {
  const line = (meter: string, nextStep: string) => ({
    customer_id: "cus_1",
    external_id: "contoso",
    customer_name: "Contoso",
    period: { id: "per_1", start: "2026-10-01T00:00:00Z", end: "2026-11-01T00:00:00Z" },
    meter_id: meter,
    meter_slug: meter,
    bills: "units",
    ours: { usage: "100", charge: "2", currency: "USD" },
    accepted_quantity: "100",
    counted_quantity: "100",
    invoiced: { quantity: "90", unexplained: "0" },
    billed_quantity: "90",
    state: "carried",
    reason: "not_billed",
    message: "the provider accepted more than its invoices bill",
    next_step: nextStep,
    actions: [],
    decided_by: "",
    decided_at: null,
    note: "",
    invoices: [],
  });
  answers["GET /v1/billing/reconciliation"] = () => [200, list(line("calls", "Wait: the next period bills the usage."), line("seats", ""))];
  open("/billing/reconciliation?open=per_1.calls");
  await screen.findByText("The provider accepted more than its invoices bill");
  screen.getByText("Wait: the next period bills the usage.");
  await press("seats");
  await waitFor(() => expect(screen.queryByText("Wait: the next period bills the usage.")).toBeNull());
  await screen.findByText("The provider accepted more than its invoices bill");
});
