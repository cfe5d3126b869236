import { screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { answers, list, open, press, session } from "../../testing";

const disabled = async (type: string) => (await screen.findByRole<HTMLInputElement>("checkbox", { name: type })).disabled;

test.each([
  { permissions: ["webhooks:read", "webhooks:write"], hidden: true },
  { permissions: ["webhooks:read", "webhooks:write", "billing:read"], hidden: false },
])("messages with charges require billing:read: $permissions", async ({ permissions, hidden }) => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions }];
  answers["GET /v1/webhooks"] = () => [200, list()];
  open("/developers/webhooks");
  await press("Create a webhook");
  expect(await disabled("alert.triggered")).toBe(hidden);
  expect(await disabled("invoice.held")).toBe(hidden);
  expect(await disabled("sync.failed")).toBe(false);
});
