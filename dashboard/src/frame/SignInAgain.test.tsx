import { act, fireEvent, screen, waitFor } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { queries, router } from "../router";
import { answers, asked, list, member, open, press, problem, sent, session, tenant, type } from "../testing";

const meter = { id: "mtr_1", slug: "calls", name: "Calls", event_type: "call", aggregation: "sum", group_by: [], value_property: "", filters: [], unit: "", usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null };
const missing = () => problem(401, "the credentials are missing or invalid");
/** The session that the API returns. undefined: the session has ended. */
let who: object | undefined;

beforeEach(() => {
  who = { ...session, permissions: ["meters:read", "meters:write"] };
  answers["GET /v1/auth/session"] = () => (who ? [200, who] : missing());
  answers["GET /v1/meters"] = () => (who ? [200, list()] : missing());
  answers["GET /v1/meters/calls"] = () => (who ? [200, meter] : missing());
  answers["PATCH /v1/meters/calls"] = () => (who ? [200, { ...meter, name: "Phone calls" }] : missing());
});

async function typeNewName() {
  open("/meters/calls/details");
  await screen.findByLabelText("Name");
  await waitFor(() => expect(queries.isFetching()).toBe(0)); // else a request of the page finds the session's end
  type("Name", "Phone calls");
}

test("typed text is kept when the session ends, and the same member can save it after signing in again", async () => {
  await typeNewName();
  who = undefined;
  await press("Save the meter");
  await screen.findByRole("heading", { name: "Your session has ended" });
  await screen.findByText("The session has ended, and nothing was changed. Try again.");
  answers["POST /v1/auth/login"] = (body) => {
    if (JSON.parse(body).password !== "a password") return problem(401, "the e-mail or password is wrong");
    who = { ...session, permissions: ["meters:read", "meters:write"], csrf_token: "another" };
    return [200, { token: "t", member }];
  };
  type("Password", "wrong");
  await press("Sign in");
  await screen.findByText("The e-mail or password is wrong");
  type("Password", "a password");
  await press("Sign in");
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  expect(sent("POST /v1/auth/login").at(-1)).toEqual({ email: "ada@example.com", password: "a password", tenant_id: "ten_1" });
  expect(router.state.location.pathname).toBe("/meters/calls/details");
  expect((await screen.findByLabelText<HTMLInputElement>("Name")).value).toBe("Phone calls");
  await press("Save the meter");
  await waitFor(() => expect(asked.filter(({ name }) => name.startsWith("PATCH"))).toHaveLength(2));
  expect(asked.find(({ name, csrf }) => name.startsWith("PATCH") && csrf === "another")).toBeTruthy();
});

test("a screen opened after the session's end waits for the sign-in, and the password is not stored", async () => {
  await typeNewName();
  who = undefined;
  act(() => router.history.push("/meters"));
  fireEvent.click(await screen.findByRole("button", { name: "Discard" }));
  await screen.findByRole("heading", { name: "Your session has ended" });
  type("Password", "a password");
  expect(JSON.stringify({ ...sessionStorage, ...localStorage })).not.toContain("a password");
  who = { ...session, permissions: ["meters:read", "meters:write"] };
  fireEvent.focus(window); // the member has signed in in another tab
  await screen.findByRole("heading", { name: "No meters yet" });
  expect(screen.queryByRole("dialog")).toBeNull();
});

test("another member's session does not continue the typed text", async () => {
  await typeNewName();
  who = undefined;
  await press("Save the meter");
  await screen.findByRole("heading", { name: "Your session has ended" });
  who = { ...session, tenant: { ...tenant, id: "ten_2", name: "Other" }, member: { ...member, id: "member_9", email: "bea@example.com" } };
  fireEvent.focus(window);
  await screen.findByRole("link", { name: "Continue as bea@example.com" });
  expect(await screen.findByRole("heading", { name: "Your session has ended" })).toBeTruthy();
});

test("signing in as another member asks before the typed text is discarded", async () => {
  await typeNewName();
  who = undefined;
  await press("Save the meter");
  fireEvent.click(await screen.findByRole("button", { name: "Sign in as another member" }));
  fireEvent.click(await screen.findByRole("button", { name: "Discard" }));
  await screen.findByRole("heading", { name: "Sign in" });
  expect(router.state.location.search).toEqual({ to: "/meters/calls/details" });
});

const signOutElsewhere = () => fireEvent(window, new StorageEvent("storage", { key: "signed-out", newValue: "now" }));

test("a sign-out in another tab of the browser signs this tab out too", async () => {
  open("/meters");
  await screen.findByRole("heading", { name: "No meters yet" });
  who = undefined;
  signOutElsewhere();
  await screen.findByRole("heading", { name: "Sign in" });
});

test("a tab with typed text asks for the sign-in after a sign-out in another tab", async () => {
  await typeNewName();
  who = undefined;
  signOutElsewhere();
  await screen.findByRole("heading", { name: "Your session has ended" });
  expect((await screen.findByLabelText<HTMLInputElement>("Name")).value).toBe("Phone calls");
});

test("signing out asks before typed text is discarded", async () => {
  answers["POST /v1/auth/logout"] = () => [200, { ended: true }];
  await typeNewName();
  fireEvent.click(await screen.findByRole("button", { name: /Ada/ }));
  fireEvent.click(await screen.findByRole("menuitem", { name: "Sign out" }));
  await screen.findByRole("heading", { name: "Discard your changes?" });
  expect(sent("POST /v1/auth/logout")).toEqual([]);
  await press("Discard");
  await screen.findByRole("heading", { name: "Sign in" });
  expect(localStorage.getItem("signed-out")).not.toBeNull();
});
