import { cleanup, fireEvent, render, screen, waitFor } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { App } from "./App";
import { queries, router } from "./router";

/** What the API answers, by method and path, and what it was asked. */
let answers: Record<string, (body: string) => [status: number, body: object]>;
let asked: { name: string; body: string; csrf: string | null }[];

const tenant = { id: "ten_1", name: "Acme", timezone: "Europe/Zurich", currency: "CHF" };
const member = { id: "member_1", tenant_id: "ten_1", email: "ada@example.com", name: "Ada", role: "viewer", has_password: true, created_at: "2026-11-01T00:00:00Z" };
const session = { tenant, member, csrf_token: "csrf-of-ada", permissions: ["customers:read"] };
const customer = { id: "cus_1", tenant_id: "ten_1", external_id: "contoso", name: "Contoso", billing_provider_id: null, metadata: {}, created_at: "2026-11-01T00:00:00Z" };
const customers = { data: [customer], has_more: false, next_page_token: null };
const problem = (status: number, detail: string) => [status, { title: "Problem", detail, status, code: "x", request_id: "REQUEST7", errors: [] }] as [number, object];

beforeEach(() => {
  asked = [];
  answers = {
    "GET /v1/auth/session": () => [200, session],
    "GET /v1/customers": () => [200, customers],
  };
  vi.stubGlobal("fetch", async (request: Request) => {
    const name = `${request.method} ${new URL(request.url).pathname}`;
    const body = await request.text();
    asked.push({ name, body, csrf: request.headers.get("X-CSRF-Token") });
    const [status, answer] = answers[name]?.(body) ?? problem(404, `the test has no ${name}`);
    return new Response(JSON.stringify(answer), { status, headers: { "Content-Type": "application/json" } });
  });
  vi.stubGlobal("matchMedia", () => ({ matches: false, addEventListener() {}, removeEventListener() {} }));
  vi.stubGlobal("scrollTo", () => {});
});

afterEach(() => {
  cleanup();
  queries.clear();
  vi.unstubAllGlobals();
});

function open(address: string) {
  render(<App />);
  router.history.push(address);
}

const type = (label: string, text: string) => fireEvent.change(screen.getByLabelText(label), { target: { value: text } });
const press = (name: string | RegExp) => fireEvent.click(screen.getByRole("button", { name }));

test("who is in two tenants chooses one, and arrives where they wanted to go", async () => {
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
  press("Sign in");
  fireEvent.click(await screen.findByRole("button", { name: /^Acme/ }));
  await screen.findByRole("link", { name: "Contoso" });
  expect(router.state.location.href).toBe("/customers?search=con");
  expect(asked.filter(({ name }) => name === "POST /v1/auth/login").map(({ body }) => JSON.parse(body))).toEqual([
    { email: "ada@example.com", password: "a password" },
    { email: "ada@example.com", password: "a password", tenant_id: "ten_1" },
  ]);
});

test("a refused sign-in says why and keeps what was typed", async () => {
  answers["POST /v1/auth/login"] = () => problem(401, "the e-mail and the password are not a member's");
  open("/sign-in");
  await screen.findByRole("heading", { name: "Sign in" });
  type("E-mail", "ada@example.com");
  type("Password", "wrong");
  press("Sign in");
  expect((await screen.findByRole("alert")).textContent).toBe("The e-mail and the password are not a member's");
  expect(screen.getByLabelText<HTMLInputElement>("Password").value).toBe("wrong");
});

test("a sign-in leads to no other site", async () => {
  answers["POST /v1/auth/login"] = () => [200, { token: "t", member }];
  open("/sign-in?to=//elsewhere.example");
  await screen.findByRole("heading", { name: "Sign in" });
  type("E-mail", "ada@example.com");
  type("Password", "a password");
  press("Sign in");
  await screen.findByRole("heading", { name: "Overview" });
  expect(router.state.location.pathname).toBe("/overview");
});

test("what failed has a request id and is tried again", async () => {
  answers["GET /v1/customers"] = () => problem(422, "page_token is not one of this query");
  open("/customers?page=old");
  expect((await screen.findByRole("alert")).textContent).toContain("page_token is not one of this query");
  expect(screen.getByText("REQUEST7")).toBeTruthy();
  answers["GET /v1/customers"] = () => [200, customers];
  press("Retry");
  await screen.findByRole("link", { name: "Contoso" });
});

test("who lacks the permission is told which, and nothing is asked for", async () => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: [] }];
  open("/customers");
  await screen.findByRole("heading", { name: "Not for the role viewer" });
  expect(screen.getByText("customers:read")).toBeTruthy();
  expect(asked.map(({ name }) => name)).not.toContain("GET /v1/customers");
});

test("signing out proves that this page asks", async () => {
  answers["POST /v1/auth/logout"] = () => [200, { ended: true }];
  open("/customers");
  fireEvent.click(await screen.findByRole("button", { name: /Ada/ }));
  fireEvent.click(await screen.findByRole("menuitem", { name: "Sign out" }));
  await screen.findByRole("heading", { name: "Sign in" });
  expect(asked.at(-1)).toMatchObject({ name: "POST /v1/auth/logout", csrf: "csrf-of-ada" });
});

test("what is typed is searched, shared by the address, and stays", async () => {
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
