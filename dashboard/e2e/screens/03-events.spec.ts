// The screens of events: search, live list, rejected events and conflicts, as the owner of the tenant.
import { test, testScreens } from "../user";

let event = "";

test("events: search, open and pause the live list", async ({ user }) => {
  await user.open("/events");
  await user.see("refreshed every 2 seconds", "customer-00");
  await user.fill({ "Idempotency key": "none-has-this" });
  await user.press("Search");
  await user.see("No event has this key");
  await user.judge("events-none");
  await user.fill({ "Idempotency key": "a" });
  await user.press("Search");
  await user.see("customer-00");
  await user.press("call");
  await user.see("Properties", "api-calls");
  await user.judge("event");
  await user.fill({ Customer: "nobody" });
  await user.press("Search");
  await user.see("There is no customer nobody");
  user.forgive("/v1/events");

  await user.open("/events");
  await user.press("Pause");
  await user.see("paused");
  await user.press("Resume");
  await user.see("refreshed every 2 seconds");

  await user.usePhone();
  await user.press("Search events");
  await user.fill({ "Idempotency key": "a" });
  await user.press("Search");
  await user.see("customer-00");
  await user.judge("events-phone");

  await user.open("/events");
  await user.press("call", "Address of this event");
  await user.see("Properties");
  event = user.address();
});

testScreens(
  ["event-alone", () => event, "facts"],
  ["events", "/events", "row"],
  ["events-rejected", "/events/rejected", "heading"],
  ["events-rejected-today", "/events/rejected?days=1", "heading"],
  ["event-conflicts", "/events/conflicts", "row"],
);

test("events: dismiss a conflict", async ({ user }) => {
  await user.open("/events/conflicts");
  await user.see("customer-01");
  await user.press("Find it");
  await user.see("customer-00");
  await user.confirm("Dismiss", { says: "is not counted", fill: { "Reason, for the audit log": "sent again" }, judge: "conflict-dismiss" });
  await user.see("No event reuses a key");
});
