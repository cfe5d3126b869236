import { act, fireEvent, screen, waitFor } from "@testing-library/react";
import { beforeEach, expect, test, vi } from "vitest";
import { router } from "../router";
import { answers, list, open, press, sent, session, type } from "../testing";

beforeEach(() => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["api_keys:manage", "meters:read", "meters:write"] }];
  answers["GET /v1/api-keys"] = () => [200, list()];
  answers["GET /v1/meters"] = () => [200, list()];
  answers["POST /v1/api-keys"] = () => [201, { key: "svc_ink_SECRET" }];
});

const escape = () => fireEvent.keyDown(document.activeElement ?? document.body, { key: "Escape" });
const outside = () => fireEvent.click(document.querySelector(".mantine-Modal-overlay")!);
const dialogs = () => screen.queryAllByRole("dialog").length;

async function makeKey() {
  open("/developers/api-keys");
  fireEvent.click(await screen.findByRole("button", { name: "Create an API key" }));
  await screen.findByLabelText("Name");
}

test("a dialog without typed text closes without a question", async () => {
  await makeKey();
  escape();
  await waitFor(() => expect(dialogs()).toBe(0));
});

for (const [way, close] of Object.entries({ Escape: escape, "a click outside": outside, Close: () => press("Close"), Back: () => press("Back") })) {
  test(`a dialog with typed text asks before ${way} discards it`, async () => {
    await makeKey();
    type("Name", "checkout");
    await close();
    await screen.findByRole("heading", { name: "Discard your changes?" });
    await press("Keep editing");
    await waitFor(() => expect(dialogs()).toBe(1));
    expect((await screen.findByLabelText<HTMLInputElement>("Name")).value).toBe("checkout");
    await close();
    fireEvent.click(await screen.findByRole("button", { name: "Discard" }));
    await waitFor(() => expect(dialogs()).toBe(0));
    await press("Create an API key");
    expect((await screen.findByLabelText<HTMLInputElement>("Name")).value).toBe("");
  });
}

test("a dialog with its initial text closes without a question", async () => {
  await makeKey();
  (await screen.findByLabelText("Name")).focus();
  type("Name", "checkout");
  type("Name", "");
  escape();
  await waitFor(() => expect(dialogs()).toBe(0));
});

test("only the button closes the dialog with a secret, and asks first if the secret was not copied", async () => {
  await makeKey();
  type("Name", "checkout");
  await press("Create the key");
  const secret = await screen.findByText("svc_ink_SECRET");
  escape();
  outside();
  expect(screen.queryByRole("button", { name: "Close" })).toBeNull();
  act(() => router.history.push("/meters"));
  await screen.findByRole("heading", { name: "Close without copying it?" });
  await press("Go back");
  await waitFor(() => expect(dialogs()).toBe(1));
  await press("I have copied it");
  await screen.findByRole("heading", { name: "Close without copying it?" });
  expect(router.state.location.pathname).toBe("/developers/api-keys");
  await press("Go back");
  fireEvent.copy(secret);
  await press("I have copied it");
  await waitFor(() => expect(dialogs()).toBe(0));
  expect(secret.isConnected).toBe(false);
});

test("the copy button tells the user to copy the secret by hand if the browser refuses", async () => {
  const written = vi.fn(async (_: string) => {});
  Object.defineProperty(navigator, "clipboard", { value: { writeText: written }, configurable: true });
  await makeKey();
  type("Name", "checkout");
  await press("Create the key");
  await screen.findByText("svc_ink_SECRET");
  written.mockRejectedValueOnce(new Error("not allowed"));
  await press("Copy");
  await screen.findByText(/Select the text and copy it/);
  await press("Copy");
  await screen.findByRole("button", { name: "Copied" });
  expect(written).toHaveBeenLastCalledWith("svc_ink_SECRET");
  await press("I have copied it");
  await waitFor(() => expect(dialogs()).toBe(0));
});

test("leaving a form with typed text asks first, but not after the form was saved", async () => {
  answers["POST /v1/meters"] = () => [201, { slug: "calls" }];
  answers["GET /v1/meters/calls"] = () => [200, { id: "mtr_1", slug: "calls", name: "", event_type: "call", aggregation: "sum", group_by: [], value_property: "", filters: [], unit: "", usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null }];
  open("/meters/-/new");
  await screen.findByLabelText("Slug");
  const unload = () => fireEvent(window, new Event("beforeunload", { cancelable: true })); // false: the browser asks for confirmation
  expect(unload()).toBe(true);
  type("Slug", "calls");
  type("Event type", "call");
  expect(unload()).toBe(false);
  fireEvent.click(await screen.findByRole("link", { name: "Customers" }));
  await screen.findByRole("heading", { name: "Discard your changes?" });
  await press("Keep editing");
  await waitFor(() => expect(dialogs()).toBe(0));
  expect(router.state.location.pathname).toBe("/meters/-/new");
  expect((await screen.findByLabelText<HTMLInputElement>("Slug")).value).toBe("calls");
  await press("Create the meter");
  await waitFor(() => expect(router.state.location.pathname).toBe("/meters/calls/prices"));
  expect(sent("POST /v1/meters")).toHaveLength(1);
  expect(unload()).toBe(true);
});

test("discarding the typed text leads to the screen that the user wanted", async () => {
  open("/meters/-/new");
  await screen.findByLabelText("Slug");
  type("Slug", "calls");
  act(() => router.history.push("/developers/api-keys"));
  fireEvent.click(await screen.findByRole("button", { name: "Discard" }));
  await screen.findByRole("heading", { name: "API keys" });
});
