// The screens of billing with a webhook as the provider (provider, Auto-Sync, syncs, holds, reconciliation,
// discrepancies, unrated usage, states) and the overview, as the owner of the tenant.
import { system } from "../system";
import { test, testScreens } from "../user";

let sync = "";

test("billing: connect a webhook, sync a customer, and turn Auto-Sync on", async ({ user }) => {
  await user.open("/billing/provider");
  await user.see("No provider is connected");
  await user.judge("provider-stripe");
  await user.choose({ Provider: "Webhook: your own URL" });
  await user.fill({ URL: system.receiver });
  await user.press("Create a secret");
  await user.see("It is shown only once");
  await user.judge("provider-secret");
  await user.closeSecret();
  await user.press("Connect the webhook");
  await user.see("Disconnect");

  await user.open("/billing/auto-sync");
  await user.press("Sync automatically");
  await user.fill({ Schedule: "daily" });
  await user.press("Save Auto-Sync");
  await user.see("the next run");

  await user.open("/customers");
  await user.press("Customer 00");
  await user.see("Point at the chart");
  await user.press("Bill", "Sync now");
  await user.see("answered.");
  await user.judge("bill-synced");
  await user.press("This sync");
  await user.see("Sync of Customer 00", "succeeded", "accepted");
  sync = user.address();
});

testScreens(
  ["sync", () => sync, "facts"],
  ["overview", "/overview", "row"],
  ["syncs", "/billing/syncs", "link"],
  ["holds", "/billing/holds", "heading"],
  ["reconciliation", "/billing/reconciliation", "heading"],
  ["discrepancies", "/billing/discrepancies", "row"],
  ["unrated", "/billing/unrated", "heading", "row"],
  ["auto-sync", "/billing/auto-sync", "form"],
  ["provider", "/billing/provider", "facts"],
  ["states", "/billing/states", "row"],
);

test("billing: disconnect the webhook", async ({ user }) => {
  await user.open("/billing/provider");
  await user.confirm("Disconnect", { says: "no longer billed" });
  await user.see("No provider is connected");
});
