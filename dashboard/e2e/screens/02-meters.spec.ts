// The screens of meters and their prices, as the owner of the tenant.
import { test, testScreens } from "../user";

test("meters: create and price a meter", async ({ user }) => {
  await user.open("/meters");
  await user.press("Create a meter", "API calls by endpoint");
  await user.see("counts events such as");
  await user.choose({ Condition: "is one of" });
  await user.fill({ "Values, one per line": "200" });
  await user.see("the number 200");
  await user.judge("meter-template");
  await user.press("Remove filter 1");
  await user.see("counts events with any properties");
  await user.fill({ Name: "Storage", Slug: "storage", "Event type": "stored" });
  await user.press("Try it on the latest 100 events");
  await user.see("No event of this type");
  await user.judge("meter-make");
  await user.press("Create the meter");
  await user.see("Storage", "Details");

  await user.press("Prices");
  await user.see("Set the first price");
  await user.fill({ "Base price": "10", "Included units": "100", "Overage rate": "0.05" });
  await user.press("Preview the running bills");
  await user.see("running bills as of now");
  await user.judge("price-set");
  await user.press("Set the price");
  await user.changeBills("/v1/meters/storage/pricing", "price-confirmed");
  await user.see("charged now");
});

test("meters: schedule a price with tiers, and withdraw it", async ({ user }) => {
  await user.open("/meters/storage/prices");
  await user.fill({ "Base price": "12" });
  await user.see("cost 69.50");
  await user.choose({ Model: "Graduated tiers" });
  await user.press("Add a tier");
  await user.fill({ "Tier 1: up to": "1000", "Tier 1: unit price": "0.02", "Tier 2: unit price": "0.01" });
  await user.see("The units in the tier times", "Charge by usage");
  await user.press("Preview the running bills");
  await user.see("running bills as of now");
  await user.judge("price-tiers");
  await user.press("Add a tier", "Remove tier 2", "Set the price");
  await user.see("scheduled", "tier by tier");
  await user.confirm("Withdraw", { says: "The version does not take effect", judge: "price-withdraw" });
  await user.seeNo("scheduled");
});

test("meters: price from a day on, and change a definition", async ({ user }) => {
  await user.open("/meters/api-calls/prices");
  await user.fill({ "Base price": "26" });
  await user.choose({ Applies: "From a day on" });
  await user.fill({ Day: `${new Date().toISOString().slice(0, 8)}01` });
  await user.press("Set the price");
  await user.changeBills("/v1/meters/api-calls/pricing");
  await user.see("26.00");

  await user.open("/meters/api-calls/details");
  await user.press("Try it on the latest 100 events");
  await user.see("Total then");
  await user.judge("meter-try");
});

test("meters: rename, archive and unarchive a meter", async ({ user }) => {
  await user.open("/meters/storage/details");
  await user.fill({ Name: "Storage space" });
  await user.press("Save the meter");
  await user.see("Storage space");
  await user.confirm("Archive", { says: "counts no further events", judge: "meter-archive", changesBills: "/v1/meters/storage/archive" });
  await user.see("archived");
  await user.confirm("Unarchive", { says: "The meter counts again", changesBills: "/v1/meters/storage/unarchive" });
  await user.see("counting");
});

test("meters: price by dimension", async ({ user }) => {
  await user.open("/meters/tokens/prices");
  await user.press("model");
  await user.see("Prices by model");
  await user.fill({ "Values of model, one per line": "small", "Overage rate": "0.01" });
  await user.press("Add a price", "Move price 2 up");
  await user.fill({ "Values of model, one per line": "large" });
  await user.see('Understood as the text "large"');
  await user.choose({ Model: "Graduated tiers" });
  await user.press("Add a tier");
  await user.fill({ "Tier 1: up to": "1000", "Tier 1: unit price": "0.03", "Tier 2: unit price": "0.02" });
  await user.see("cost 47.50", "no price by dimension charges");
  await user.choose({ "Curve of": "model small" });
  await user.press("Preview the running bills");
  await user.see("running bills as of now");
  await user.judge("price-dimensions");
  await user.press("Set the price");
  await user.changeBills("/v1/meters/tokens/pricing");
  await user.see("by dimension (model");
  await user.press("Add a price", "Remove price 3");
});

testScreens(
  ["meters", "/meters", "link"],
  ["meter-new", "/meters/-/new", "form"],
  ["meter-details", "/meters/storage/details", "form"],
  ["meter-prices", "/meters/api-calls/prices", "row"],
  ["meter-dimension-prices", "/meters/tokens/prices", "row"],
  ["meter-uncounted-events", "/meters/api-calls/uncounted-events", "heading", "row"],
);
