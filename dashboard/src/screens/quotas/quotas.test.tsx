import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { beforeEach, expect, test } from "vitest";
import { answers, asked, customers, list, open, press, sent, session, type } from "../../testing";

const meter = { id: "mtr_1", slug: "tokens", name: "", event_type: "call", aggregation: "sum", group_by: ["model"], value_property: "", filters: [], unit: "tokens", usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null };
const terms = { meter: "tokens", group: null, mode: "hard", period: "billing" };
const ofPlan = { ...terms, quota_id: "quo_1", limit: 1000, used: 750.5, reserved: 100, remaining: 149.5, resets_at: "2099-01-01T00:00:00Z" };
const own = { ...terms, quota_id: "quo_2", group: { model: "large" }, period: "lifetime", mode: "soft", limit: 10, used: 12, reserved: 0, remaining: 0, resets_at: null };
const unlimited = { ...terms, quota_id: "quo_3", period: "day", limit: null, used: 5, reserved: 0, remaining: null, resets_at: "2099-01-01T00:00:00Z" };
const stored = { ...terms, customer: null, plan: "pro", limit: 1000, created_at: "2026-11-01T00:00:00Z" };
const plan = { id: "plan_1", slug: "pro", name: "Pro", features: { seats: 5, limit: "12345678901234567890.10" }, created_at: "2026-11-01T00:00:00Z", archived_at: null };

beforeEach(() => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["customers:read", "meters:read", "pricing:read", "quotas:read", "quotas:write"] }];
  answers["GET /v1/meters"] = () => [200, list(meter)];
  answers["GET /v1/customers/by-id"] = () => [200, customers.data[0]!];
  answers["GET /v1/customers/by-external-id/entitlements"] = () => [200, { customer: "contoso", plan: "pro", features: { sso: true, seats: 5 }, quotas: [ofPlan, own, unlimited] }];
  answers["GET /v1/quotas"] = () => [200, list({ ...stored, id: "quo_2", customer: "contoso", plan: null })];
  answers["GET /v1/plans/pro"] = () => [200, plan];
});

const rows = async () => within(await screen.findByRole("table", { name: "The quotas" })).findAllByRole("row");
const cellsOf = (row: HTMLElement) => within(row).getAllByRole("cell").map((cell) => cell.textContent);

test("the quotas that apply to a customer are listed with their usage and their source", async () => {
  open("/customers/cus_1/quotas");
  await screen.findByText("exceeded");
  await screen.findAllByText("750.5", { exact: false });
  const shown = (await rows()).slice(1).map(cellsOf);
  expect(shown[0]!.slice(0, 4)).toEqual(["tokens", "750.5 tokens used, 100 tokens reserved", "149.5 tokens", "1,000 tokens each billing period, hard"]);
  expect(shown[0]!.slice(5)).toEqual(["plan pro", "Replace"]);
  expect(shown[1]).toEqual(["tokens large", "12 tokens used, 0 tokens reserved", "0 tokensexceeded", "10 tokens in total, soft", "never", "customer", "ChangeDelete"]);
  expect(shown[2]!.slice(1, 4)).toEqual(["5 tokens used, 0 tokens reserved", "unlimited", "unlimited each day, hard"]);
  expect((await screen.findByText("sso")).parentElement!.textContent).toBe("ssotrue");
  expect(new URL(asked.find(({ name }) => name === "GET /v1/quotas")!.url).searchParams.get("customer")).toBe("contoso");
});

test("a quota of a group is set for a customer", async () => {
  answers["PUT /v1/quotas"] = () => [200, stored];
  open("/customers/cus_1/quotas");
  await rows();
  await press("Set a quota");
  await screen.findByRole("option", { name: "tokens" });
  type("Meter", "tokens");
  type("Usage", "group");
  type("Value of model", "7.10");
  type("Limit", "0.1234567890123456789");
  await press("Set the quota");
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
  expect(asked.find(({ name }) => name === "PUT /v1/quotas")!.body).toBe('{"customer":"contoso","meter":"tokens","group":{"model":7.10},"limit":0.1234567890123456789,"mode":"hard","period":"billing"}');
});

test("the button Replace sets a customer's own quota in place of the plan's quota", async () => {
  answers["PUT /v1/quotas"] = () => [200, stored];
  open("/customers/cus_1/quotas");
  await rows();
  await press("Replace the quota of tokens each billing period");
  fireEvent.change(await screen.findByLabelText("Limit"), { target: { value: "" } });
  await press("Save the quota");
  await waitFor(() => expect(sent("PUT /v1/quotas")).toHaveLength(1));
  expect(sent("PUT /v1/quotas")[0]).toEqual({ customer: "contoso", meter: "tokens", limit: null, mode: "hard", period: "billing" });
});

test("a customer's own quota is deleted after a confirmation", async () => {
  answers["DELETE /v1/quotas/quo_2"] = () => [200, { id: "quo_2", deleted: true }];
  open("/customers/cus_1/quotas");
  await rows();
  await press("Delete the quota of tokens (large) in total");
  await screen.findByText(/no longer limited by this quota/);
  fireEvent.click(within(await screen.findByRole("dialog")).getByRole("button", { name: "Delete the quota of tokens (large) in total" }));
  await waitFor(() => expect(sent("DELETE /v1/quotas/quo_2")).toHaveLength(1));
});

test("a role without quotas:write sees the quotas and cannot set one", async () => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["customers:read", "meters:read", "quotas:read"] }];
  open("/customers/cus_1/quotas");
  await rows();
  expect((await screen.findByRole("button", { name: "Set a quota" })).title).toContain("quotas:write");
});

test("the quotas of a plan are listed and can be changed", async () => {
  answers["GET /v1/quotas"] = () => [200, list({ ...stored, id: "quo_1" })];
  answers["PUT /v1/quotas"] = () => [200, stored];
  open("/meters/-/plans/pro/quotas");
  await screen.findByText("1,000", { exact: false });
  expect(cellsOf((await rows())[1]!).slice(0, 2)).toEqual(["tokens", "1,000 tokens each billing period, hard"]);
  await press("Change the quota of tokens each billing period");
  fireEvent.change(await screen.findByLabelText("Mode"), { target: { value: "soft" } });
  await press("Save the quota");
  await waitFor(() => expect(sent("PUT /v1/quotas")).toEqual([{ plan: "pro", meter: "tokens", limit: 1000, mode: "soft", period: "billing" }]));
});

test("the features of a plan are edited as JSON, and numbers keep their digits", async () => {
  answers["GET /v1/plans/pro"] = () => [200, JSON.stringify(plan).replace('"12345678901234567890.10"', "12345678901234567890.10")];
  answers["PUT /v1/plans/pro/features"] = () => [200, plan];
  open("/meters/-/plans/pro/features");
  const field = await screen.findByLabelText<HTMLTextAreaElement>("Features as JSON");
  expect(field.value).toBe('{\n  "seats": 5,\n  "limit": 12345678901234567890.10\n}');
  type("Features as JSON", "[1]");
  await screen.findByText("Must be a JSON object");
  type("Features as JSON", '{"seats": 5.50}');
  await press("Save the features");
  await waitFor(() => expect(sent("PUT /v1/plans/pro/features")).toHaveLength(1));
  expect(asked.find(({ name }) => name === "PUT /v1/plans/pro/features")!.body).toBe('{"features":{"seats":5.50}}');
});
