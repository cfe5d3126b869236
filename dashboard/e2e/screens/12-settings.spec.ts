// The settings screens (members, tenant, single sign-on, audit log, own account), the navigation on a phone and the
// dialog of other tenants, as the owner of the tenant.
import { system } from "../system";
import { test } from "../user";

test("settings: invite a member, and reset a password", async ({ user }) => {
  await user.open("/settings");
  await user.see("Invitations");
  await user.press("Invite a member");
  await user.fill({ "E-mail": "bea@example.com", Name: "Bea" });
  await user.choose({ Role: "billing: reads everything; changes prices and billing" });
  await user.judge("member-invite");
  await user.press("Create the invitation");
  await user.see("/invitation#");
  await user.judge("member-invited");
  await user.closeSecret();
  await user.see("bea@example.com");
  await user.confirm("Renew", { says: "no longer valid" });
  await user.closeSecret();

  await user.press("Ada");
  await user.see("everything, including members and settings");
  await user.press("Edit");
  await user.fill({ Name: "Ada Byron" });
  await user.judge("member-edit");
  await user.press("Save the member");
  await user.see("Ada Byron");
  await user.confirm("Reset the password", { says: "a new password" });
  const reset = await user.readSecret();
  await user.closeSecret();
  await user.judgeScreens([
    ["members", user.address(), "row"],
    ["password-reset", reset.slice(system.url.length), "form"],
  ]);

  await user.open("/settings/members");
  await user.confirm("Revoke the invitation of bea@example.com", { says: "no longer be accepted" });
  await user.seeNo("bea@example.com");
  await user.confirm("Revoke", { says: "no longer be accepted" });
  await user.see("No invitation is pending");
});

test("settings: change the tenant", async ({ user }) => {
  await user.open("/settings/tenant");
  await user.fill({ Name: "Walked", "Grace, in hours": "96" });
  await user.press("Strict");
  await user.see("close 96 hours after their end", "field are rejected."); // not the description of the switch
  await user.judge("tenant-changed");
  await user.press("Save the settings");
  await user.seeNo("close 96 hours");
  await user.see("Walked");
  await user.press("Strict", "Save the settings");
  await user.seeNo("creates its customer");
  await user.judgeScreen("tenant", "/settings/tenant", "form");
});

test("settings: save and delete an OIDC issuer", async ({ user }) => {
  await user.open("/settings/single-sign-on");
  await user.fill({ Issuer: system.issuer.url, "Client ID": "odometer", "Client secret": "hush" });
  await user.press("Save the issuer");
  await user.see("with a client secret");
  await user.judgeScreen("single-sign-on", "/settings/single-sign-on", "facts");
  await user.open("/settings/single-sign-on");
  await user.confirm("Delete the issuer", { says: "can no longer sign in at" });
  await user.seeNo("with a client secret");
});

test("settings: search the audit log", async ({ user }) => {
  await user.open("/settings/audit-log");
  await user.fill({ Action: "tenant." });
  await user.press("Show");
  await user.see("tenant.update");
  await user.press("tenant.update");
  await user.see("IP address");
  await user.judgeScreens([
    ["audit-log-opened", user.address(), "facts"],
    ["audit-log", "/settings/audit-log", "row"],
    ["audit-log-empty", "/settings/audit-log?actor=nobody", "heading"],
  ]);
});

test("settings: the navigation on a phone", async ({ user }) => {
  await user.open("/settings/you");
  await user.usePhone();
  await user.press("Settings");
  await user.see("API reference");
  await user.judge("navigation");
  await user.press("Meters");
  await user.see("Create a meter");
  await user.seeNo("API reference");
});

test("settings: change the password, and open another tenant", async ({ user }) => {
  const other = "quite another staple of horses";
  await user.judgeScreen("you", "/settings/you", "form");
  await user.open("/settings/you");
  await user.fill({ "Current password": system.password, "New password": other });
  await user.press("Change the password");
  await user.see("The password is changed");
  await user.fill({ "Current password": other, "New password": system.password });
  await user.press("Change the password");
  await user.seeFilled({ "Current password": "", "New password": "" });
  await user.see("The password is changed");

  await user.openMenu();
  await user.press("Another tenant");
  await user.see("Your password");
  await user.judge("another-tenant");
  await user.fill({ "Your password": system.password });
  await user.press("Show my tenants");
  await user.see("accepts this password");
  await user.press("Close");
  await user.seeNo("accepts this password");
});

test("settings: end sessions", async ({ user }) => {
  await user.forgetSession(); // so that the session appears as one of another browser
  await user.signIn();
  await user.open("/settings/you");
  await user.confirm("End", { says: "The browser that uses it is signed out", judge: "session-end" });
  await user.confirm("Sign out everywhere", { says: "including this one" });
  await user.see("Sign in");
});
