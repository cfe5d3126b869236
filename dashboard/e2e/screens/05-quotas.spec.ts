// The screens of quotas and features of a plan, and of the quotas of a customer, as the owner of the tenant.
import { expect, test, testScreens } from "../user";

let quotas = "";

test("quotas: set and change quotas of a plan and of a customer", async ({ user }) => {
  await user.open("/meters/-/plans/pro/quotas");
  await user.see("No quotas yet");
  await user.press("Set a quota");
  await user.choose({ Meter: "api-calls", Period: "each month" });
  await user.fill({ Limit: "1000" });
  await user.judge("quota-set");
  await user.press("Set the quota");
  await user.see("each month, hard");
  await user.press("Change the quota of api-calls");
  await user.fill({ Limit: "900" });
  await user.press("Save the quota");
  await user.see("900 each month, hard");

  await user.press("Features");
  await user.see("Your application reads");
  await user.fill({ "Features as JSON": '{"sso": true, "seats": 5}' });
  await user.press("Save the features");
  await expect(user.page.getByRole("button", { name: "Save the features", disabled: true })).toBeVisible();

  await user.open("/customers");
  await user.press("Customer 02", "Quotas");
  await user.see("plan pro", "750.5 used, 100 reserved", "seats");
  await user.press("Set a quota");
  await user.choose({ Meter: "api-calls", Period: "in total", Mode: "soft: usage beyond the limit is allowed and marked as exceeded" });
  await user.fill({ Limit: "500" });
  await user.press("Set the quota");
  await user.see("500 in total, soft", "exceeded");
  quotas = user.address();
});

testScreens(
  ["customer-quotas", () => quotas, "facts"],
  ["plan-quotas", "/meters/-/plans/pro/quotas", "row"],
  ["plan-features", "/meters/-/plans/pro/features", "form"],
);

test("quotas: delete a quota of a customer, and replace one of its plan", async ({ user }) => {
  await user.open(quotas);
  await user.confirm("Delete the quota of api-calls in total", { says: "no longer limited" });
  await user.seeNo("exceeded");
  await user.press("Replace the quota of api-calls each month");
  await user.fill({ Limit: "2000" });
  await user.press("Save the quota");
  await user.seeNo("900 each month");
  await user.see("2,000 each month, hard");
});
