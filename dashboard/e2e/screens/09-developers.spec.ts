// The screens of API keys, HMAC secrets and webhooks, as the owner of the tenant.
import { test, testScreens } from "../user";

let webhook = "";

for (const { name, thing, submit } of [
  { name: "api-keys", thing: "an API key", submit: "Create the key" },
  { name: "hmac-secrets", thing: "an HMAC secret", submit: "Create the secret" },
]) {
  test(`developers: create, rotate and revoke ${thing}`, async ({ user }) => {
    await user.open(`/developers/${name}`);
    await user.press(`Create ${thing}`);
    await user.fill({ Name: "checkout" });
    await user.choose({ Expires: "In 90 days" });
    await user.judge(`${name}-make`);
    await user.press(submit);
    await user.see("It is shown only once");
    await user.judge(`${name}-made`);
    await user.closeSecret();
    await user.see("checkout");
    await user.confirm("Rotate", { says: "A new ", judge: `${name}-rotate` });
    await user.closeSecret();
    await user.see("replaced");
    await user.confirm("Revoke", { says: "get 401" });
    await user.confirm("Revoke", { says: "get 401" });
    await user.seeNo("replaced");
    await user.press("Show");
    await user.see("revoked");
    await user.judgeScreen(name, `/developers/${name}?ended=shown`, "row");
  });
}

test("developers: create, try and change a webhook", async ({ user }) => {
  await user.open("/developers/webhooks");
  await user.press("Create a webhook");
  await user.fill({ URL: "http://127.0.0.1:9/messages", Description: "the incident channel" });
  await user.press("discrepancy.detected");
  await user.judge("webhook-make");
  await user.press("Create the webhook");
  await user.closeSecret();
  await user.press("the incident channel");
  await user.see("No messages yet");
  await user.press("Send a test message", "webhook.test");
  await user.see('"webhook_id"');
  await user.press("Redeliver", "Edit");
  await user.fill({ Description: "the channel for incidents" });
  await user.press("Save the webhook");
  await user.see("the channel for incidents");
  await user.press("Rotate");
  await user.choose({ "The old one expires": "In an hour" });
  await user.press("Rotate");
  await user.closeSecret();
  await user.see("the previous secret");
  await user.confirm("Disable", { says: "Waiting messages are not delivered" });
  await user.see("disabled");
  await user.press("Enable");
  await user.see("enabled");
  webhook = user.address();
});

testScreens(
  ["webhooks", "/developers/webhooks", "row"],
  ["webhook", () => webhook, "message"],
);

test("developers: delete a webhook", async ({ user }) => {
  await user.open(webhook);
  await user.confirm("Delete", { says: "its delivery history is deleted" });
  await user.see("No webhooks yet");
});
