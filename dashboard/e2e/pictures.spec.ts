// These tests take the pictures in docs from the system that `make up` runs: first screens of the dashboard, as the
// owner of the demo tenant, then the screens of the Temporal UI that operators use, while the fake of Stripe fails for
// the demo tenant that is billed at Stripe.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import type { APIRequestContext, Page } from "@playwright/test";
import { takeSmallScreenshot } from "./png";
import { StripeFake } from "./stripe";
import { system } from "./system";
import { expect, test as base } from "./user";

const folder = join(import.meta.dirname, "../../docs/pictures");

/** The maximum size of a picture, in bytes. */
const largestFile = 120 << 10;

const namespace = `${system.temporalUI}/namespaces/default`;
const tenant = system.stripeTenant.id.replace("ten_", "");

/** The customers of the demo tenant with an id at Stripe. */
const customers = ["northwind", "contoso", "fabrikam", "sakura"];

/** A picture of a page, taken when the page shows the text. */
interface Picture {
  name: string;
  url: string;
  shows: string;
  height: number;
}

/** Opens the page of a picture, waits until it shows the text, and saves the picture. */
async function take(page: Page, { name, url, shows, height }: Picture) {
  await page.setViewportSize({ width: 1280, height });
  await page.goto(url);
  await expect(page.locator("body")).toContainText(shows, { useInnerText: true });
  const savedViews = page.getByRole("button", { name: "Collapse saved views" });
  if (await savedViews.isVisible()) await savedViews.click();
  await save(page, name);
}

/** Saves a screenshot of the page in docs/pictures. */
async function save(page: Page, name: string) {
  await page.waitForLoadState("networkidle"); // late content
  const png = await takeSmallScreenshot(page);
  expect(png.length, name).toBeLessThanOrEqual(largestFile);
  writeFileSync(join(folder, `${name}.png`), png);
}

/** An operator of the demo tenant that is billed at Stripe. The operator uses the API. */
class Operator {
  constructor(
    private request: APIRequestContext,
    readonly stripe: StripeFake,
  ) {}

  async call(method: string, url: string, data?: object) {
    const headers = { Authorization: `Bearer ${system.stripeTenant.key}` };
    const response = await this.request.fetch(url, { method, headers, ...(data && { data }) });
    await expect(response).toBeOK();
    return response.status() === 204 ? {} : response.json();
  }

  /** Sends a usage event. */
  use = (customer: string, eventType: string, value: number) => this.call("POST", "/v1/events", { customer_id: customer, event_type: eventType, value });

  /** Requests a sync, and returns the customer's id. */
  async sync(customer: string): Promise<string> {
    return (await this.call("POST", "/v1/billing/sync", { customer_external_id: customer })).customer_id;
  }

  /** Turns the holding of invoices on, with a grace of zero hours, or off, with a grace of 72 hours. */
  holdInvoices = (enabled: boolean) => this.call("PATCH", "/v1/tenant", { grace_hours: enabled ? 0 : 72, invoice_hold: { enabled } });

  /** Waits until a hold of the customer has a state, and returns its id. */
  async awaitHold(customer: string, state: string): Promise<string> {
    let id: string | undefined;
    await expect(async () => {
      id = (await this.call("GET", `/v1/billing/holds?customer=${customer}&state=${state}`)).data[0]?.id;
      expect(id).toBeDefined();
    }).toPass();
    return id!;
  }

  /** Returns the URL of a workflow's last run in the Temporal UI. */
  async findRun(workflow: string): Promise<string> {
    const id = encodeURIComponent(workflow);
    const response = await this.request.get(`${system.temporalUI}/api/v1/namespaces/default/workflows/${id}`);
    await expect(response).toBeOK();
    return `${namespace}/workflows/${id}/${(await response.json()).workflowExecutionInfo.execution.runId}`;
  }
}

const test = base.extend<{ operator: Operator }>({
  operator: async ({ request }, use) => {
    const operator = new Operator(request, new StripeFake(request, system.stripe));
    await operator.stripe.recover();
    await use(operator);
    await operator.stripe.recover();
  },
});

test("the dashboard", async ({ user, request }) => {
  const response = await request.get("/v1/customers/acme", { headers: { Authorization: `Bearer ${system.key}` } });
  const customer = `/customers/${(await response.json()).id}`;
  await take(user.page, { name: "overview", url: "/overview", shows: "Needs attention", height: 760 });
  await take(user.page, { name: "usage", url: `${customer}/usage?meter=tokens&range=30`, shows: "Point at the chart", height: 760 });
  await take(user.page, { name: "breakdown", url: "/usage?meter=tokens&by=customer,model&range=30", shows: "Highest usage first", height: 760 });
  await take(user.page, { name: "bill", url: `${customer}/bill?meter=tokens`, shows: "→", height: 760 });

  await user.open("/meters/tokens/details");
  await user.page.setViewportSize({ width: 1280, height: 1180 });
  await user.press("Add a filter");
  const filter = user.page.getByLabel("Filter 1").getByRole("textbox");
  await filter.nth(0).fill("model");
  await filter.nth(1).fill("large");
  await user.press("Try it on");
  await user.see("Total then");
  await save(user.page, "meter-form");
});

// One sync fails because Stripe rejects the key. Other syncs wait because Stripe does not accept meter events.
test("failed and waiting syncs", async ({ page, operator }) => {
  for (const customer of customers) await operator.sync(customer);
  for (const customer of customers) {
    for (const eventType of ["api_request", "completion", "image"]) await operator.use(customer, eventType, 7);
  }
  await operator.stripe.fail({ status: 401, times: 1 });
  await operator.sync("northwind");
  await operator.stripe.fail({ status: 503, times: 1_000_000, path: "/v1/billing/meter_events" });
  await operator.sync("fabrikam");
  const customer = await operator.sync("contoso");
  await operator.call("POST", "/v1/billing/auto-sync/trigger");
  const run = await operator.findRun(`sync-customer/${tenant}/${customer.replace("cus_", "")}`);

  const query = encodeURIComponent(`OdometerTenant="${system.stripeTenant.id}" and OdometerOutcome in ('running','failed')`);
  await take(page, { name: "outcomes", url: `${namespace}/workflows?query=${query}`, shows: "sync-customer/", height: 540 });
  await take(page, { name: "waiting", url: `${run}/pending-activities`, shows: "Last Failure", height: 680 });
  await take(page, { name: "details", url: `${run}/user-metadata`, shows: "Current Details", height: 760 });
  await take(page, { name: "schedule", url: `${namespace}/schedules/${encodeURIComponent(`auto-sync/${tenant}`)}`, shows: "Upcoming Runs", height: 860 });
});

// The draft invoice of a new customer disagrees with our charge, because the price at Stripe is different.
test("a held invoice", async ({ page, operator }) => {
  const customer = `woodgrove-${Math.floor(Date.now() / 1000)}`;
  await operator.holdInvoices(true);
  try {
    const { account } = await operator.call("GET", "/v1/billing/provider");
    const end = new Date(Date.now() + 20_000);
    const key = account.replace("acct_", "sk_test_"); // the account of the demo tenant
    const price = { id: "price_tokens_old", meter: "mtr_tokens", unit_amount_decimal: "0.0015", metadata: { meter_slug: "tokens" } };
    await operator.stripe.subscribe({ id: account, key }, customer, price, end);
    await operator.call("POST", "/v1/customers", { external_id: customer, name: "Woodgrove Bank", billing_provider_id: `cus_${customer}` });
    await operator.use(customer, "completion", 250_000);
    await operator.sync(customer);
    await expect(async () => operator.stripe.sendInvoiceCreated(await operator.stripe.findDraft(`cus_${customer}`))).toPass(); // after the end
    const hold = await operator.awaitHold(customer, "disagrees");
    const run = await operator.findRun(`hold-invoice/${tenant}/${hold.replace("hld_", "")}`);
    await take(page, { name: "held", url: `${run}/user-metadata`, shows: "Current Details", height: 680 });
    await operator.call("POST", `/v1/billing/holds/${hold}/release`, { reason: "this customer keeps the old price until the end of the year" });
    await operator.awaitHold(customer, "released");
    await take(page, { name: "released", url: `${run}/user-metadata`, shows: "Current Details", height: 680 });
  } finally {
    await operator.holdInvoices(false);
  }
});
