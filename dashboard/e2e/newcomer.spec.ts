// The owner of a new tenant walks from the empty overview to the first sync with Stripe: overview, meters, API keys,
// customers, billing and the run in the Temporal UI. Then the owner handles outages of Stripe (syncs and reports) and a
// disputed invoice (holds and reconciliation).
import { expectFastPaint } from "./paint";
import { StripeFake } from "./stripe";
import { system } from "./system";
import { expect, test as base, User } from "./user";

const test = base.extend<{ stripe: StripeFake }>({
  stripe: ({ request }, use) => use(new StripeFake(request, system.stripe)),
});

/** The newcomer's account at the fake of Stripe. */
const account = { id: "acct_newcomer", key: "sk_test_newcomer" };

/** Distinguishes the names of this run from those of earlier runs on the same system. */
const mark = new Date().toISOString().replace(/\D/g, "").slice(4, 14);

test("first paint of the overview", ({ user }) => expectFastPaint(user));

// A new user creates and prices a meter, sends an event with a new key and sees the usage. Then the user connects
// Stripe, links the customer, syncs, opens the explanation of the bill, and finds the run in the Temporal UI.
test("newcomer: from an empty tenant to the run of a sync", async ({ user, stripe, request, browser }) => {
  const customer = `first-${mark}`;
  await stripe.subscribe({ ...account, webhook_secret: "whsec_newcomer" }, mark, { id: `price_${mark}`, unit_amount_decimal: "2" });

  await user.open("/overview");
  if (system.isInUse) {
    await user.see("Needs attention");
  } else {
    await user.see("These steps lead to the first bill");
    await user.judge("overview-empty");
  }
  await user.press("Meters");
  await createPricedMeter(user, { Name: `Calls ${mark}`, Slug: `calls-${mark}`, "Event type": `call_${mark}` });
  if (system.isInUse) await user.changeBills(`/v1/meters/calls-${mark}/pricing`);
  await user.see("charged now");

  await user.press("Developers");
  await user.sendEventWithNewKey("my application", { customer_id: customer, event_type: `call_${mark}`, value: 1250 });
  await user.press("Customers", customer, `calls-${mark}`);
  await user.see("1,250");
  await user.judge("newcomer-usage");

  await user.press("Billing", "Provider");
  await connectStripe(user);
  await user.judge("newcomer-provider");
  await user.press("Customers", customer, "Details");
  await user.fill({ "At the provider": `cus_${mark}` });
  await user.press("Save the customer");
  await user.see(`cus_${mark}`);
  await user.press("Bill", "Sync now");
  await user.see("succeeded");
  await user.press("This sync");
  await user.see(`Sync of ${customer}`, "Reported");
  await user.judge("newcomer-sync");
  await user.press(customer, "Bill", `calls-${mark}`);
  await user.see("The charge at the provider's own price");
  await user.judge("newcomer-bill");
  await user.press("Details");

  const runs = await user.page.getByRole("link", { name: "Runs in Temporal" }).getAttribute("href");
  const temporal = new User(await browser.newPage(), request);
  await temporal.page.goto(runs!);
  await temporal.see("sync-customer/");
  await temporal.press("sync-customer/");
  await temporal.see("Back to Workflows", "Completed");
  await temporal.takePicture("newcomer-temporal");
});

/** Creates a meter from the list of meters, and sets its first price. */
async function createPricedMeter(user: User, fields: Record<string, string>) {
  await user.press("Create a meter");
  await user.fill(fields);
  await user.press("Create the meter");
  await user.see("Details");
  await user.press("Prices");
  await user.see("Set the first price");
  await user.fill({ "Overage rate": "0.02" });
  await user.press("Set the price");
}

/** Connects the newcomer's account on the screen of the provider. */
async function connectStripe(user: User) {
  await user.choose({ Provider: "Stripe" });
  await user.fill({ "Secret key": account.key, "Signing secret of the endpoint": "whsec_newcomer", "Prices of meters": `calls-${mark} price_${mark}` });
  await user.press("Connect Stripe");
  await user.see(account.id);
}

test.describe("outages", () => {
  test.skip(system.isInUse, "the fake of Stripe also serves other tenants");

  const customer = `first-${mark}`;

  /** Sends new usage of the newcomer's customer, and requests a sync. Does not wait for the end of the sync. */
  async function syncUsage(user: User) {
    await user.open("/developers/api-keys");
    await user.sendEventWithNewKey("used once", { customer_id: customer, event_type: `call_${mark}`, value: 10 });
    await user.open("/customers");
    await user.press(customer);
    await user.see("Invoices");
    await user.press("Bill", "Sync now");
  }

  test("Stripe refuses the key", async ({ user, stripe }) => {
    await stripe.fail({ status: 401, times: 1_000_000 });
    await syncUsage(user);
    await user.see("failed");
    await user.press("This sync");
    await user.see("What to do");
    await user.judgeHere("sync-failed", "facts");
    await stripe.recover();
  });

  test("sync again after a failure", async ({ user }) => {
    await user.open("/overview");
    await user.press("Sync again");
    await user.see("1 requested");
    await user.reopen("/overview", "Nothing needs attention"); // the overview polls only every 30 seconds
    await user.open("/billing/syncs?status=failed");
    await user.press(customer, "Sync again");
    await user.see("succeeded");
  });

  test("Stripe is unavailable", async ({ user, stripe }) => {
    await stripe.fail({ status: 503, times: 1_000_000 });
    await syncUsage(user);
    await user.see("tried again");
    await user.judge("bill-waiting");
    await user.press("This sync");
    await user.see("Last error");
    await user.press("Pause");
    await user.fill({ Reason: "Stripe does not" });
    await user.page.waitForFunction(() =>
      performance.getEntriesByType("resource").some((entry) => entry instanceof PerformanceResourceTiming && entry.name.endsWith("/v1/billing/sync") && entry.responseEnd > 0),
    );
    await user.seeFilled({ Reason: "Stripe does not" });
    await user.press("Back");
    await user.see("are not saved");
    await user.press("Discard");
    await user.seeNo("are not saved");
    await user.judgeHere("sync-waiting", "facts");
  });

  test("pause a sync", async ({ user }) => {
    await user.open("/billing/syncs");
    await user.press(customer);
    await user.confirm("Pause", { says: "until the customer is resumed", fill: { Reason: "Stripe is asked" }, judge: "sync-pause" });
    await user.see("Stripe is asked by");
    await user.judgeHere("sync-paused", "facts");
  });

  test("resume, retry and cancel a sync", async ({ user, stripe }) => {
    await user.open("/billing/syncs");
    await user.press(customer);
    await user.confirm("Resume", { says: "that are still to be sent", fill: { Reason: "Stripe has answered" } });
    await user.seeNo("Stripe is asked by");
    await user.confirm("Retry", { says: "is sent now", fill: { Reason: "Stripe has answered" } });
    await user.confirm("Cancel", { says: "The sync ends as failed", fill: { Reason: "it is begun anew" }, judge: "sync-cancel" }, "Cancel the sync");
    await user.see("What to do");
    await user.judgeHere("sync-canceled", "facts");
    await stripe.recover();
    await user.press("Sync again");
    await user.see("succeeded");
  });

  // The outcome of a report is unknown, because the user disconnects Stripe while the worker retries the report.
  for (const { verb, says, state, done } of [
    { verb: "Reject", says: "billed twice", state: "rejected", done: false },
    { verb: "Accept", says: "is not sent again", state: "accepted", done: true },
  ]) {
    test(`${verb} a report with an unknown outcome`, async ({ user, stripe }) => {
      // A new sync would join a run that is still open, and the screen would show an earlier attempt of that run.
      await user.reopen("/billing/syncs?status=running", "No sync is running");
      await stripe.fail({ status: 503, times: 1_000_000, path: "/v1/subscription_items/", done });
      await syncUsage(user);
      await user.see("tried again");
      const bill = user.address();
      await user.open("/billing/provider");
      await user.confirm("Disconnect", { says: "no longer billed" });
      await user.see("No provider is connected");
      await user.reopen(bill, "unknown outcome");
      await user.judgeHere(`report-${state}-in-doubt`, "total");
      await user.confirm(verb, { says, fill: { Evidence: "the list at Stripe" }, judge: `report-${state}` });
      await user.seeNo("unknown outcome");
      await user.see(state);
      await stripe.recover();
      await user.open("/billing/provider");
      await connectStripe(user);
    });
  }
});

// An operator releases the held invoice of a customer with a different price at Stripe. After the invoice is void,
// the operator decides on the unbilled usage.
test.describe("disputes", () => {
  test.skip(system.isInUse, "a tenant that is in use does not hold invoices");

  const customer = `old-price-${mark}`;
  let invoice = "";

  test("a draft disagrees with the charge", async ({ user, stripe, request }) => {
    await user.open("/meters");
    await createPricedMeter(user, { Name: `Seats ${mark}`, Slug: `seats-${mark}`, "Event type": `seat_${mark}` });
    await user.changeBills(`/v1/meters/seats-${mark}/pricing`);
    await user.see("charged now");
    await user.open("/settings/tenant");
    await user.fill({ "Grace, in hours": "0" });
    await user.press("Hold invoices");
    await user.see("Draft invoices with usage are held");
    await user.press("Save the settings");
    await user.seeNo("Draft invoices with usage are held");

    const end = new Date(Date.now() + 50 * 60_000); // the steps until the sync take less time, even on a busy machine
    await stripe.subscribe(account, customer, { id: `price_old_${mark}`, unit_amount_decimal: "3", metadata: { meter_slug: `seats-${mark}` } }, end);
    await user.open("/developers/api-keys");
    await user.sendEventWithNewKey("used once", { customer_id: customer, event_type: `seat_${mark}`, value: 200 });
    await user.open("/customers");
    await user.press(customer);
    await user.see("Invoices");
    await user.press("Details");
    await user.fill({ Name: "Woodgrove Bank", "At the provider": `cus_${customer}` });
    await user.press("Save the customer");
    await user.see(`cus_${customer}`);
    await user.press("Bill", "Sync now");
    await user.see("1 of 1 report answered.");
    await user.judgeScreen("bill-stripe", user.address(), "total");

    await expect(await request.post(system.clock, { data: new Date(end.getTime() + 1_000).toISOString() })).toBeOK();
    await user.open("/billing/provider");
    const address = await user.page.getByText(/\/v1\/provider-webhooks\//).first().innerText();
    invoice = await stripe.findDraft(`cus_${customer}`);
    await stripe.sendInvoiceCreated(invoice, address);
  });

  test("release the held invoice", async ({ user }) => {
    await user.reopen("/billing/holds", "disagrees");
    await user.open("/overview");
    await user.see(invoice);
    await user.press("Woodgrove Bank");
    await user.see("Held invoices", "Finding");
    const hold = user.address();
    await user.judgeScreens([
      ["overview-needs", "/overview", "link"],
      ["holds-held", "/billing/holds", "row"],
      ["hold", hold, "facts"],
    ]);
    await user.open(hold);
    await user.confirm("Release", { says: "collects it unchanged", fill: { Reason: "the old price holds until the end of the year" }, judge: "hold-release" });
    await user.reopen(hold, "until the end of the year by");
    await user.see("released");
    await user.judge("hold-released");
  });

  test("decide on the unbilled usage of a void invoice", async ({ user, stripe }) => {
    await user.reopen("/billing/holds?state=released", invoice);
    await stripe.voidInvoice(invoice, account.key);
    await user.open("/billing/auto-sync");
    await user.press("Sync automatically");
    await user.fill({ Schedule: "daily" });
    await user.press("Save Auto-Sync");
    await user.see("the next run");
    await user.confirm("Run now", { says: "in addition to the schedule" });
    await user.reopen("/billing/reconciliation?state=waived", `seats-${mark}`);
    await user.press(`seats-${mark}`);
    await user.see(invoice, "void");
    await user.judgeScreens([
      ["reconciliation-line", user.address(), "facts"],
      ["auto-sync-run", "/billing/auto-sync", "facts"],
      ["reconciliation-lines", "/billing/reconciliation", "row"],
    ]);

    await user.open("/billing/reconciliation");
    await user.press(`seats-${mark}`);
    await user.see("Counts as billed");
    for (const { verb, says, state } of [
      { verb: "Rebill", says: "customer's next period bills", state: "carried" },
      { verb: "Waive", says: "is never billed", state: "waived" },
      { verb: "Write off", says: "recorded as a loss", state: "written" },
    ]) {
      const reason = `they have promised it: ${state}`;
      await user.confirm(verb, { says, fill: { Reason: reason }, judge: `reconciliation-${state}` });
      await user.see(reason);
    }
    await user.see("written off");
    await user.judge("reconciliation-decided");
  });
});

test("sign-out", ({ user }) => user.signOut());
