import { screen, within } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { answers, list, open, press, sent, session } from "../../testing";

beforeEach(() => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["api_keys:manage", "events:read", "meters:read", "pricing:read"] }];
  answers["GET /v1/api-keys"] = () => [200, list()];
  answers["GET /v1/events"] = () => [200, { ...list(), searched_until: "2026-11-01T00:00:00Z" }];
  answers["GET /v1/meters"] = () => [200, list({ slug: "calls", status: "active" })];
  answers["GET /v1/pricing"] = () => [200, list()];
});

const step = async (title: string) => within((await screen.findByRole("heading", { name: title })).closest("li") as HTMLElement);

test("the command contains the created key, and the sent event appears", async () => {
  answers["POST /v1/api-keys"] = () => {
    answers["GET /v1/api-keys"] = () => [200, list({ scope: "ingest_only", revoked_at: null })];
    return [201, { key: "svc_ink_SECRET" }];
  };
  open("/start");
  await (await step("Create a key")).findByText("to do");
  await (await step("Create a meter")).findByText("done");
  // The member lacks the permission to read the provider.
  expect((await step("Connect a provider")).queryByText(/^(done|to do)$/)).toBeNull();
  expect((await screen.findByLabelText("A command that sends an event")).textContent).toContain("Bearer $ODOMETER_KEY");
  await press("Create a key");
  await screen.findByText("svc_ink_SECRET");
  expect(sent("POST /v1/api-keys")).toEqual([{ name: "first steps", scope: "ingest_only" }]);
  expect((await screen.findByLabelText("A command that sends an event")).textContent).toContain("Bearer svc_ink_SECRET");
  answers["GET /v1/events"] = () => [200, { ...list({ event_type: "begun", timestamp: "2026-11-01T00:00:00Z" }), searched_until: "2026-11-01T00:00:00Z" }];
  await screen.findByText("begun");
  await (await step("Send an event")).findByText("done");
});
