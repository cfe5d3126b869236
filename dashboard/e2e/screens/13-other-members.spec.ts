// The screens of invitations and sign-in, as invited members: Vera accepts with a password, and Olga at an OIDC issuer.
// The owner of the tenant invites them, removes Vera and begins to make Olga the owner.
import { system } from "../system";
import { expect, test } from "../user";

let tenant = "";
const invitations: Record<string, string> = {};

test("invite members and connect an OIDC issuer", async ({ user }) => {
  await user.open("/settings/single-sign-on");
  await user.fill({ Issuer: system.issuer.url, "Client ID": system.issuer.client, "Client secret": system.issuer.secret });
  await user.press("Save the issuer");
  await user.see("with a client secret");
  await user.open("/settings/tenant");
  tenant = await user.page.getByText(/^ten_\w+$/).innerText();
  for (const name of ["Vera", "Olga"]) {
    const email = `${name.toLowerCase()}@example.com`;
    await user.open("/settings/members");
    await user.press("Invite a member");
    await user.fill({ "E-mail": email, Name: name });
    await user.press("Create the invitation");
    invitations[name] = (await user.readSecret()).slice(system.url.length);
    await user.closeSecret();
    await user.see(email);
  }
});

test("a viewer accepts an invitation with a password", async ({ visitor }) => {
  await visitor.open("/sign-in");
  await visitor.judgeScreen("invitation", invitations.Vera!, "form");
  await visitor.open(invitations.Vera!);
  await visitor.fill({ Password: "vera's own horse battery" });
  await visitor.press("Accept the invitation");
  await visitor.see("Overview");
  await visitor.open("/settings");
  await visitor.see("vera@example.com");
  await visitor.judgeScreens([
    ["viewer-members", "/settings/members", "heading"],
    ["viewer-audit-log", "/settings/audit-log", "heading"],
    ["viewer-overview", "/overview", "title"],
  ]);
  await visitor.signOut();
  await visitor.judgeScreens([
    ["invitation-over", "/invitation", "title"],
    ["forgotten", "/sign-in/forgotten", "form"],
    ["at-issuer", "/sign-in/issuer", "form"],
  ]);

  await visitor.open("/sign-in");
  await visitor.press("Forgot your password?");
  await visitor.see("can send you a link");
  await visitor.fill({ "E-mail": "vera@example.com" });
  await visitor.press("Request a link");
  await visitor.see("Link requested");
});

test("a member accepts an invitation at the issuer, and signs in there", async ({ visitor }) => {
  await visitor.open(invitations.Olga!);
  await visitor.press("Accept at");
  await visitor.seeNavigation();
  await visitor.see("Olga");
  await visitor.signOut();

  await visitor.open("/sign-in");
  await visitor.press("Sign in through your company's issuer");
  await visitor.fill({ Tenant: tenant });
  await visitor.press("Continue");
  await visitor.see("signs its members in at");
  await visitor.judge("issuer-page");
  await visitor.press("Continue to");
  await visitor.seeNavigation();
  await visitor.see("Olga");
  await visitor.signOut();
});

test("an expired callback, and the sign-in of an unknown tenant", async ({ visitor }) => {
  await visitor.page.goto("/v1/auth/oidc/callback?state=bookmarked");
  await visitor.see("Start again");
  await expect(visitor.page.getByLabel("Password", { exact: true })).toBeVisible();
  await visitor.judge("issuer-over");
  await visitor.page.goto("/v1/auth/oidc/ten_0/login");
  await visitor.see("You are not signed in");
  visitor.forgive("/v1/auth/oidc/ten_0/login");
  await visitor.judge("issuer-refused");
  await visitor.press("Begin again");
  await visitor.see("Sign in through an issuer");
  await expect(visitor.page.getByLabel("Tenant")).toBeVisible();
});

test("remove a member, delete the issuer, and make another member the owner", async ({ user }) => {
  await user.open("/settings/members");
  await user.press("Vera");
  await user.confirm("Remove", { says: "Keep them valid", judge: "member-remove" });
  await user.seeNo("vera@example.com");
  await user.open("/settings/single-sign-on");
  await user.confirm("Delete the issuer", { says: "can no longer sign in at" });
  await user.open("/settings/members");
  await user.press("Olga");
  await user.confirm("Make owner", { says: "A tenant has one owner", judge: "member-make-owner" });
});

test("sign-out", ({ user }) => user.signOut());
