import { fireEvent, screen, waitFor } from "@testing-library/react";
import { expect, test } from "vitest";
import { router } from "./router";
import { answers, asked, customers, member, open, press, problem, session, tenant, type } from "./testing";

test("a member of two tenants chooses one at the sign-in, and gets to the screen that the address named", async () => {
  let signedIn = false;
  answers["GET /v1/auth/session"] = () => (signedIn ? [200, session] : problem(401, "the credentials are missing"));
  answers["POST /v1/auth/login"] = (body) => {
    const chosen = JSON.parse(body).tenant_id;
    signedIn = chosen === "ten_1";
    return [200, signedIn ? { token: "t", member } : { tenants: [{ ...tenant, id: "ten_2", name: "Other" }, tenant] }];
  };
  open("/customers?search=con");
  await screen.findByRole("heading", { name: "Sign in" });
  type("E-mail", "ada@example.com");
  type("Password", "a password");
  await press("Sign in");
  fireEvent.click(await screen.findByRole("button", { name: /^Acme/ }));
  await screen.findByRole("link", { name: "Contoso" });
  expect(router.state.location.href).toBe("/customers?search=con");
  expect(asked.filter(({ name }) => name === "POST /v1/auth/login").map(({ body }) => JSON.parse(body))).toEqual([
    { email: "ada@example.com", password: "a password" },
    { email: "ada@example.com", password: "a password", tenant_id: "ten_1" },
  ]);
});

test("the user menu switches to another tenant, and a wrong password does not end the session", async () => {
  const other = { ...tenant, id: "ten_2", name: "Other" };
  let chosen = "ten_1";
  answers["GET /v1/auth/session"] = () => [200, { ...session, tenant: chosen === "ten_1" ? tenant : other, csrf_token: `csrf of ${chosen}` }];
  answers["GET /v1/customers"] = () => [200, chosen === "ten_1" ? customers : { ...customers, data: [{ ...customers.data[0], name: "Theirs" }] }];
  answers["POST /v1/auth/login"] = (body) => {
    const { password, tenant_id } = JSON.parse(body);
    if (password !== "a password") return problem(401, "the e-mail or password is wrong");
    if (tenant_id === undefined) return [200, { tenants: [tenant, other] }];
    chosen = tenant_id;
    return [200, { token: "t", member }];
  };
  open("/customers?search=con");
  await screen.findByRole("link", { name: "Contoso" });
  fireEvent.click(await screen.findByRole("button", { name: /Ada/ }));
  fireEvent.click(await screen.findByRole("menuitem", { name: "Another tenant" }));
  fireEvent.change(await screen.findByLabelText("Your password"), { target: { value: "wrong" } });
  await press("Show my tenants");
  await screen.findByText("The e-mail or password is wrong");
  expect(router.state.location.href).toBe("/customers?search=con");
  type("Your password", "a password");
  await press("Show my tenants");
  fireEvent.click(await screen.findByRole("button", { name: /^Other/ }));
  await screen.findByRole("link", { name: "Theirs" });
  expect(router.state.location.href).toBe("/customers");
  expect((await screen.findByTitle("ten_2")).textContent).toBe("Other");
  expect(screen.queryByRole("dialog")).toBeNull();
});

test("a refused sign-in shows the reason and keeps the typed password", async () => {
  answers["POST /v1/auth/login"] = () => problem(401, "the e-mail or password is wrong");
  open("/sign-in");
  await screen.findByRole("heading", { name: "Sign in" });
  type("E-mail", "ada@example.com");
  type("Password", "wrong");
  await press("Sign in");
  expect((await screen.findByRole("alert")).textContent).toBe("The e-mail or password is wrong");
  expect((await screen.findByLabelText<HTMLInputElement>("Password")).value).toBe("wrong");
});

test("the sign-in shows its own text for a problem in the address, and no text of the address", async () => {
  open("/sign-in?problem=over");
  expect((await screen.findByRole("alert")).textContent).toBe("The sign-in through your company's issuer has expired, or it started in another browser. Start again.");
  router.history.push("/sign-in?problem=call+0900");
  await waitFor(() => expect(screen.queryByRole("alert")).toBeNull());
  expect(document.body.textContent).not.toContain("0900");
});

test("the sign-in does not lead to another site that the address names", async () => {
  answers["POST /v1/auth/login"] = () => [200, { token: "t", member }];
  open("/sign-in?to=//elsewhere.example");
  await screen.findByRole("heading", { name: "Sign in" });
  type("E-mail", "ada@example.com");
  type("Password", "a password");
  await press("Sign in");
  await screen.findByRole("heading", { name: "Overview" });
  expect(router.state.location.pathname).toBe("/overview");
});

test("a failed read shows the reason and the request id, and a button that reads again", async () => {
  answers["GET /v1/customers"] = () => [422, { ...problem(422, "")[1], errors: [{ location: "query.page_token", message: "is not a page token of this query" }] }];
  open("/customers?page=old");
  expect((await screen.findByRole("alert")).textContent).toContain("The page in the address belongs to another list");
  expect(await screen.findByText("REQUEST7")).toBeTruthy();
  answers["GET /v1/customers"] = () => [200, customers];
  await press("Retry");
  await screen.findByRole("link", { name: "Contoso" });
});

test("a user without the permission sees its name, and the screen sends no request for the data", async () => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: [] }];
  open("/customers");
  await screen.findByRole("heading", { name: "The role viewer has no access" });
  expect(await screen.findByText("customers:read")).toBeTruthy();
  expect(asked.map(({ name }) => name)).not.toContain("GET /v1/customers");
});

test("signing out sends the session's CSRF token", async () => {
  answers["POST /v1/auth/logout"] = () => [200, { ended: true }];
  open("/customers");
  fireEvent.click(await screen.findByRole("button", { name: /Ada/ }));
  fireEvent.click(await screen.findByRole("menuitem", { name: "Sign out" }));
  await screen.findByRole("heading", { name: "Sign in" });
  expect(asked.at(-1)).toMatchObject({ name: "POST /v1/auth/logout", csrf: "csrf-of-ada" });
});

test("the typed search is written to the address and stays in the field", async () => {
  answers["GET /v1/customers"] = () => [200, customers];
  open("/customers");
  const field = await screen.findByLabelText<HTMLInputElement>("Search customers");
  fireEvent.change(field, { target: { value: "con" } });
  await waitFor(() => expect(router.state.location.href).toBe("/customers?search=con"));
  fireEvent.change(field, { target: { value: "contoso " } });
  expect(field.value).toBe("contoso ");
  await waitFor(() => expect(router.state.location.href).toBe("/customers?search=contoso"));
  expect(field.value).toBe("contoso ");
  router.history.push("/customers?search=acme");
  await waitFor(() => expect(field.value).toBe("acme"));
});

test("Ctrl K finds a customer by any id, and Enter goes there", async () => {
  answers["GET /v1/customers"] = () => [200, customers];
  answers["GET /v1/customers/by-id"] = () => [200, customers.data[0]!];
  open("/customers");
  await screen.findByRole("link", { name: "Contoso" });
  fireEvent.keyDown(document.documentElement, { key: "k", code: "KeyK", ctrlKey: true });
  const field = await screen.findByRole("combobox", { name: "Find" });
  fireEvent.change(field, { target: { value: "cus_1" } });
  const found = await screen.findByRole("option", { name: /Contoso/ });
  expect(field.getAttribute("aria-activedescendant")).toBe(found.id);
  fireEvent.keyDown(field, { key: "ArrowDown" });
  fireEvent.keyDown(field, { key: "ArrowUp" });
  fireEvent.keyDown(field, { key: "Enter" });
  await waitFor(() => expect(router.state.location.pathname).toBe("/customers/cus_1/usage"));
  expect(screen.queryByRole("combobox", { name: "Find" })).toBeNull();
});

test("Ctrl K finds screens that are not sections, and events by their key", async () => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["events:read"] }];
  answers["GET /v1/events"] = () => [200, { data: [], has_more: false, next_page_token: null, searched_until: "2026-11-01T00:00:00Z" }];
  open("/events");
  await screen.findByRole("heading", { name: "Events" });
  fireEvent.keyDown(document.documentElement, { key: "k", code: "KeyK", ctrlKey: true });
  const field = await screen.findByRole("combobox", { name: "Find" });
  fireEvent.change(field, { target: { value: "reconc" } });
  await screen.findByRole("option", { name: /Reconciliation/ });
  fireEvent.change(field, { target: { value: "order 7" } });
  fireEvent.click(await screen.findByRole("option", { name: /with the key order 7/ }));
  await waitFor(() => expect(router.state.location.search).toEqual({ key: "order 7" }));
});

test("an address without a screen shows so within the frame", async () => {
  open("/nowhere/at/all");
  await screen.findByRole("heading", { name: "This screen does not exist" });
  expect(await screen.findByRole("navigation", { name: "Screens" })).toBeTruthy();
});
