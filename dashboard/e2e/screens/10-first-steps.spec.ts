// The screen of the first steps, as the owner of the tenant, and as the owner's application that sends an event.
import { test } from "../user";

test("first steps: create a key, send an event with it, and see the event", async ({ user }) => {
  await user.open("/developers/api-keys");
  await user.press("First steps");
  await user.see("Connect a provider");
  await user.press("Create a key");
  await user.sendEvent({ customer_id: "first", event_type: "begun" });
  await user.see("The newest event has the type");
  await user.judgeScreen("start", "/start", "item");
});
