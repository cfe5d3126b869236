import { fireEvent, screen, within } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { router } from "../../router";
import { answers, list, open, press, session } from "../../testing";

const webhook = {
  ...{ id: "whk_1", url: "https://example.com/mail", description: "the mailer", event_types: ["member.invited"], enabled: true, failing_since: null, disabled_at: null },
  ...{ secret_last_four: "jK2L", former_secret_until: null, created_at: "2026-11-01T00:00:00Z" },
};
const delivery = { id: "msg_1", event_type: "member.invited", status: "failed", attempts: 0, next_attempt_at: null, created_at: "2026-11-01T00:00:00Z" };

beforeEach(() => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["webhooks:read", "webhooks:write"] }];
  answers["GET /v1/webhooks/whk_1"] = () => [200, webhook];
  answers["GET /v1/webhooks/whk_1/deliveries"] = () => [200, list(delivery)];
  answers["GET /v1/webhooks/whk_1/deliveries/msg_1"] = () => [200, { ...delivery, body: `{"type":"member.invited"}`, attempts_made: [] }];
});

test("a failed delivery without attempts shows that it was canceled", async () => {
  open("/developers/webhooks/whk_1");
  fireEvent.click(await screen.findByRole("button", { name: "member.invited" }));
  await screen.findByText("The delivery was canceled before the message was sent.");
  expect(router.state.location.href).toBe("/developers/webhooks/whk_1?message=msg_1");
  expect((await screen.findByLabelText("The body of the message")).textContent).toBe(`{"type":"member.invited"}`);
});

test("a redelivered message is pending again", async () => {
  answers["POST /v1/webhooks/whk_1/deliveries/msg_1/redeliver"] = () => {
    answers["GET /v1/webhooks/whk_1/deliveries"] = () => [200, list({ ...delivery, status: "pending" })];
    return [202, {}];
  };
  open("/developers/webhooks/whk_1?message=msg_1");
  await screen.findByText("The delivery was canceled before the message was sent.");
  await press("Redeliver");
  await within(await screen.findByRole("table", { name: "The deliveries" })).findByText("The message was not sent yet.");
});
