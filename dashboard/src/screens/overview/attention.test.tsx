import { screen, within } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { answers, asked, open, press, sent, session } from "../../testing";

const cause = "the webhook answered 400";
const item = (n: number, more: object = {}) => ({
  kind: "sync_failed",
  id: `sync-${n}`,
  reference: "",
  customer: { id: `cus_${n}`, external_id: `customer-${n}`, name: "" },
  cause,
  amounts: [{ amount: "16", currency: "USD" }],
  since: "2026-11-01T00:00:00Z",
  until: null,
  action: "Fix the cause, then sync the customer again.",
  url: `/v1/billing/syncs/sync-${n}`,
  syncing: false,
  ...more,
});
const page = (data: object[], more: object = {}) => ({
  data,
  has_more: false,
  next_page_token: null,
  total_items: 26,
  counts: [{ kind: "sync_failed", count: 26 }],
  causes: [{ kind: "sync_failed", cause, count: 26, since: "2026-11-01T00:00:00Z" }],
  ...more,
});

beforeEach(() => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["billing:read", "billing:write"] }];
  answers["GET /v1/billing/revenue"] = () => [200, { data: [], caveat: "" }];
});

test("the items that need attention are counted, grouped by cause and shown in pages", async () => {
  answers["GET /v1/billing/attention"] = () => {
    const second = asked.at(-1)?.url.includes("page_token=next");
    return [200, second ? page([item(2, { syncing: true }), item(3, { kind: "webhook_failing", id: "whk_1", customer: undefined, reference: "https://example.com", cause: "deliveries fail", amounts: [] })]) : page([item(1)], { has_more: true, next_page_token: "next" })];
  };
  open("/overview");
  const table = within(await screen.findByRole("table", { name: "Needs attention" }));
  await table.findByText(`Sync failed: ${cause}`);
  expect((await screen.findByText("need attention")).parentElement?.textContent).toBe("26 need attention");
  await press("Show more");
  await table.findByText("customer-2");
  expect(table.getByText("syncing")).toBeTruthy();
  expect(table.getByRole("link", { name: "https://example.com" }).getAttribute("href")).toBe("/developers/webhooks/whk_1");
  expect(table.getAllByText(`Sync failed: ${cause}`)).toHaveLength(1);
});

test("syncing all customers of a cause again includes customers that are not shown", async () => {
  answers["GET /v1/billing/attention"] = () => [200, page([item(1)])];
  answers["POST /v1/billing/attention/retry"] = () => [202, { customers: 26, joined: 0, remaining_customers: 0 }];
  open("/overview");
  await screen.findByRole("button", { name: "Sync all 26 again" });
  await press("Sync all 26 again");
  await screen.findByText("26 requested", { exact: false });
  expect(sent("POST /v1/billing/attention/retry")).toEqual([{ cause }]);
});

test("without items that need attention, no count is shown", async () => {
  answers["GET /v1/billing/attention"] = () => [200, page([], { total_items: 0, causes: [] })];
  open("/overview");
  await screen.findByText("Nothing needs attention.");
  expect(screen.queryByText("need attention")).toBeNull();
});

test("an alert links to its firings", async () => {
  const alert = item(4, { kind: "alert_triggered", id: "alt_7/fir_9", cause: "Budget", reference: "80 %", amounts: [] });
  answers["GET /v1/billing/attention"] = () => [200, page([alert], { causes: [] })];
  open("/overview");
  const table = within(await screen.findByRole("table", { name: "Needs attention" }));
  expect((await table.findByRole("link", { name: "customer-4" })).getAttribute("href")).toBe("/alerts/alt_7");
  expect(table.getByText("Alert: Budget")).toBeTruthy();
  expect(table.getByText("80 %")).toBeTruthy();
});
