// The screens of plans and their prices, as the owner of the tenant.
import { test, testScreens } from "../user";

test("plans: create and price a plan", async ({ user }) => {
  await user.open("/meters");
  await user.press("Plans");
  await user.see("Pro");
  await user.press("Create a plan");
  await user.fill({ Name: "Growth", Slug: "growth" });
  await user.judge("plan-make");
  await user.press("Create the plan");
  await user.see("the meter's own");
  await user.press("api-calls");
  await user.see("Set the first price");
  await user.fill({ "Base price": "100", "Overage rate": "0.01" });
  await user.press("Preview the running bills");
  await user.see("running bills as of now");
  await user.press("Set the price");
  await user.see("charged now");
});

testScreens(
  ["plans", "/meters/-/plans", "link"],
  ["plan-prices", "/meters/-/plans/growth/prices", "link"],
  ["plan-price", "/meters/-/plans/growth/prices/api-calls", "row"],
);

test("plans: withdraw a price, archive and unarchive a plan", async ({ user }) => {
  await user.open("/meters/-/plans/growth/prices/api-calls");
  await user.fill({ "Base price": "90" });
  await user.press("Set the price");
  await user.see("scheduled");
  await user.confirm("Withdraw", { says: "The version does not take effect" });
  await user.seeNo("scheduled");

  await user.open("/meters/-/plans/growth/prices");
  await user.confirm("Archive", { says: "cannot be assigned to more customers" });
  await user.see("archived");
  await user.confirm("Unarchive", { says: "assigned to customers again" });
  await user.see("offered");
});
