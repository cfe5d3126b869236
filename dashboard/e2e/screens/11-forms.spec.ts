// The form of a new meter, as the owner of the tenant: leaving the form, and signing in again after the session ended.
import { system } from "../system";
import { test } from "../user";

test("forms keep unsaved text on a link, on the back button, and after the session ends", async ({ user }) => {
  await user.open("/meters");
  await user.press("Create a meter");
  await user.fill({ Slug: "never-made" });
  await user.press("Customers");
  await user.see("are not saved");
  await user.judge("form-left");
  await user.press("Keep editing");
  await user.seeNo("are not saved");
  await user.page.evaluate(() => history.back());
  await user.see("are not saved");
  await user.press("Keep editing");
  await user.seeNo("are not saved");
  await user.seeFilled({ Slug: "never-made" });

  await user.page.context().clearCookies();
  await user.fill({ "Event type": "never" });
  await user.press("Create the meter");
  await user.see("Your session has ended");
  user.forgive("/v1/meters");
  await user.judge("session-ended");
  await user.fill({ Password: system.password });
  await user.press("Sign in");
  await user.seeNo("Your session has ended");
  await user.seeFilled({ Slug: "never-made", "Event type": "never" });
  await user.press("Customers");
  await user.see("are not saved");
  await user.press("Discard");
  await user.see("Customer 01");
});
