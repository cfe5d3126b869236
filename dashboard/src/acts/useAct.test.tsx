import { act, fireEvent, screen, waitFor } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { router } from "../router";
import { answers, customers, list, open, press, sent, session } from "../testing";

const run = { id: "new", customer_id: "cus_1", customer_name: "Contoso", external_id: "contoso", trigger: "manual", status: "running", requested_at: "2026-11-01T00:00:00Z", error: "", last_error: "", lines: [], excluded: [] };
const period = { id: null, start: "2026-10-31T23:00:00Z", end: "2026-11-30T23:00:00Z", due_at: "2026-12-03T23:00:00Z", closed_at: null, state: "open" };

/** Delays the answer to a request until the test calls the returned function. */
function later(name: string, answer: object): () => Promise<void> {
  const { fetch } = globalThis;
  let send = () => {};
  const asked = new Promise<void>((resolve) => (send = resolve));
  globalThis.fetch = async (request, options) => {
    const response = await fetch(request, options);
    if (request instanceof Request && `${request.method} ${new URL(request.url).pathname}` === name) await asked;
    return response;
  };
  answers[name] = () => [200, answer];
  return () => act(async () => send());
}

beforeEach(() => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["customers:read", "billing:read", "billing:write", "meters:write"] }];
  answers["GET /v1/customers/by-id"] = () => [200, customers.data[0]!];
  answers["GET /v1/billing/periods"] = () => [200, list(period)];
  answers["GET /v1/billing/preview"] = () => [200, []];
  answers["GET /v1/billing/syncs"] = () => [200, list(run)];
  answers["GET /v1/billing/syncs/new"] = () => [200, run];
});

test("an answer that arrives after the user has left the screen does not navigate", async () => {
  const sync = later("POST /v1/billing/sync", run);
  open("/customers/cus_1/bill");
  await screen.findByRole("button", { name: "Sync now" });
  await press("Sync now");
  await waitFor(() => expect(sent("POST /v1/billing/sync")).toHaveLength(1));
  act(() => router.history.push("/billing/syncs/new"));
  await screen.findByRole("heading", { name: "Sync of Contoso" });
  await press("Pause the sync of Contoso");
  const reason = await screen.findByLabelText<HTMLTextAreaElement>("Reason, for the audit log");
  await sync();
  await waitFor(() => expect(router.state.isLoading).toBe(false));
  expect(router.state.location.pathname).toBe("/billing/syncs/new");
  expect(reason.isConnected).toBe(true);
});

test("an answer that arrives while the user is still on the screen navigates", async () => {
  const sync = later("POST /v1/billing/sync", run);
  open("/customers/cus_1/bill?meter=calls");
  await screen.findByRole("button", { name: "Sync now" });
  await press("Sync now");
  await waitFor(() => expect(sent("POST /v1/billing/sync")).toHaveLength(1));
  await sync();
  await waitFor(() => expect(router.state.location.href).toBe("/customers/cus_1/bill?meter=calls&sync=new"));
});

test("the button keeps the focus during the request, and does not send the request twice", async () => {
  const sync = later("POST /v1/billing/sync", run);
  open("/customers/cus_1/bill");
  const button = await screen.findByRole("button", { name: "Sync now" });
  button.focus();
  await press("Sync now");
  await waitFor(() => expect(button.getAttribute("aria-disabled")).toBe("true"));
  fireEvent.click(button);
  expect(document.activeElement).toBe(button);
  await sync();
  await waitFor(() => expect(button.getAttribute("aria-disabled")).toBeNull());
  expect(document.activeElement).toBe(button);
  expect(sent("POST /v1/billing/sync")).toHaveLength(1);
});

test("a pending request of one customer's screen does not affect the next customer's screen", async () => {
  const respondToSync = later("POST /v1/billing/sync", run);
  open("/customers/cus_1/bill");
  await screen.findByRole("button", { name: "Sync now" });
  await press("Sync now");
  await waitFor(() => expect(sent("POST /v1/billing/sync")).toHaveLength(1));
  answers["GET /v1/customers/by-id"] = () => [200, { ...customers.data[0]!, id: "cus_2", external_id: "tailspin", name: "Tailspin" }];
  act(() => router.history.push("/customers/cus_2/bill"));
  await screen.findByRole("heading", { name: "Tailspin" });
  expect((await screen.findByRole("button", { name: "Sync now" })).getAttribute("data-loading")).toBeNull();
  await respondToSync();
  await waitFor(() => expect(router.state.isLoading).toBe(false));
  expect(router.state.location.href).toBe("/customers/cus_2/bill");
});
