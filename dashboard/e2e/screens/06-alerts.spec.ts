// The screens of alerts: list, form and one alert, as the owner of the tenant.
import { test, testScreens } from "../user";

let alert = "";

test("alerts: try and create an alert", async ({ user }) => {
  await user.open("/alerts");
  await user.see("No alerts yet");
  await user.press("Create an alert");
  await user.see("The last 30 days");
  await user.fill({ Name: "Budget" });
  await user.choose({ Meter: "api-calls" });
  await user.fill({ Thresholds: "1000" });
  await user.press("Try the alert");
  await user.see("would have fired", "threshold 1,000");
  await user.judge("alert-tried");
  await user.usePhone();
  await user.judge("alert-tried-phone");
  await user.press("Create the alert");
  await user.see("usage of api-calls reaches 1,000", "customer-00"); // the usage reaches it already
  alert = user.address();
});

testScreens(
  ["alerts", "/alerts", "row"],
  ["alert", () => alert, "row"],
  ["alert-new", "/alerts/new", "form"],
);

test("alerts: change, disable and delete an alert", async ({ user }) => {
  await user.open(alert);
  await user.fill({ Thresholds: "1100" });
  await user.press("Save the alert");
  await user.see("usage of api-calls reaches 1,100");
  await user.confirm("Disable", { says: "does not fire until" });
  await user.see("disabled");
  await user.press("Enable");
  await user.see("enabled");
  await user.confirm("Delete", { says: "its firings are deleted" });
  await user.see("No alerts yet");
});
