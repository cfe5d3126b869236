import { screen, waitFor, within } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { router } from "../../router";
import { answers, list, open, press, sent, session } from "../../testing";

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

test("a sync that has failed is asked for again, and the new one is shown", async () => {
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

test("the way to a sync ends with its id", async () => {
  answers["GET /v1/billing/syncs/old"] = () => [200, run("old", { status: "succeeded" })];
  open("/billing/syncs/old");
  const way = within(await screen.findByRole("navigation", { name: "You are here" }));
  expect(way.getAllByRole("listitem").map(({ textContent }) => textContent)).toEqual(["Billing", "Syncs", "old"]);
});

test("what became of Auto-Sync's runs is shown, as far as Temporal says it", async () => {
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

test("where totals and events differ, both are shown", async () => {
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

test("usage that nothing bills is added up by reason, and listed with its estimate", async () => {
  const line = { customer_id: "cus_1", external_id: "contoso", customer_name: "Contoso", meter_id: "mtr_1", meter_slug: "calls", detail: "", usage: "60", event_count: 2 };
  const period = { start: "2026-10-01T00:00:00Z", end: "2026-11-01T00:00:00Z", state: "before" };
  answers["GET /v1/billing/unrated"] = () => [
    200,
    list({ ...line, period, reason: "before_first_period", estimate: "2.15", currency: "USD" }, { ...line, period: { ...period, state: "in_grace" }, reason: "no_price", estimate: null, currency: null }),
  ];
  answers["GET /v1/billing/unrated/totals"] = () => [200, { since: "2026-09-01T00:00:00Z", caveat: "", data: [{ reason: "before_first_period", currency: "USD", customers: 1, lines: 1, estimate: "2.15" }] }];
  open("/billing/unrated");
  const totals = within(await screen.findByRole("table", { name: "Unrated usage by reason and currency" }));
  expect(totals.getByText("Before the customer's first billing period").closest("tr")?.textContent).toContain("2.15");
  await screen.findByText("The meter has no price");
  expect((await screen.findByText("no price")).closest("tr")?.textContent).toContain("in grace");
});
