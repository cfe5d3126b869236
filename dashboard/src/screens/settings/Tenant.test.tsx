import { fireEvent, screen, waitFor } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { queries } from "../../router";
import { answers, open, press, sent, session, tenant, type } from "../../testing";

const saved = {
  ...{ ...tenant, grace_hours: 72, late_policy: "adjust", requests_per_minute: 1000, strict: false, idempotency_conflicts: "accept" },
  ...{ v1_bodyless_writes: false, invoice_hold: { enabled: false, deadline_hours: 48 }, created_at: "2026-11-01T00:00:00Z" },
};

beforeEach(() => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["tenant:manage"] }];
  answers["GET /v1/tenant"] = () => [200, saved];
});

const isStrict = () => screen.getByLabelText<HTMLInputElement>("Strict").checked;

test("a switch pressed during a save keeps its new state", async () => {
  answers["PATCH /v1/tenant"] = (body) => {
    const changed = { ...saved, ...JSON.parse(body) };
    answers["GET /v1/tenant"] = () => [200, changed];
    return [200, changed];
  };
  open("/settings/tenant");
  await screen.findByLabelText("Strict");
  type("Grace, in hours", "96");
  fireEvent.click(screen.getByLabelText("Strict"));
  await press("Save the settings");
  fireEvent.click(screen.getByLabelText("Strict"));
  expect(isStrict()).toBe(false);
  await waitFor(() => expect(screen.queryByText(/close 96 hours/)).toBeNull());
  expect(isStrict()).toBe(false);
  await press("Save the settings");
  await waitFor(() => expect(sent("PATCH /v1/tenant")).toEqual([{ grace_hours: 96, strict: true }, { strict: false }]));
});

test("another user's change is shown, and saving another setting does not undo it", async () => {
  open("/settings/tenant");
  await screen.findByLabelText("Name");
  type("Name", "Acme Inc.");
  answers["GET /v1/tenant"] = () => [200, { ...saved, strict: true, name: "Acme & Co" }];
  await queries.invalidateQueries({ queryKey: ["tenant"] });
  await waitFor(() => expect(isStrict()).toBe(true));
  expect(screen.getByLabelText<HTMLInputElement>("Name").value).toBe("Acme Inc.");
  await press("Save the settings");
  await waitFor(() => expect(sent("PATCH /v1/tenant")).toEqual([{ name: "Acme Inc." }]));
});
