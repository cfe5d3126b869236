import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { LosslessNumber } from "lossless-json";
import { expect, test } from "vitest";
import { queries } from "../../router";
import { answers, asked, open, press, problem, sent, session, type } from "../../testing";

const meter = { id: "mtr_1", slug: "calls", name: "Calls", event_type: "call", aggregation: "sum", group_by: [], value_property: "", filters: [], unit: "", usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null };

function details(more: object) {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["meters:read", "meters:write", "events:read"] }];
  answers["GET /v1/meters/calls"] = () => [200, { ...meter, ...more }];
  open("/meters/calls/details");
}

test("a meter that counts earlier events shows how many days are complete", async () => {
  details({ status: "backfilling", backfill: { counted_days: 3, days: 14 } });
  await screen.findByText("backfilling, 3 of 14 days");
  await screen.findByText(/3 of 14 days are complete/);
});

test("a meter shows the property, the unit and the filters by which it counts", async () => {
  details({ value_property: "usage.tokens", unit: "tokens", filters: [{ property: "model", operator: "in", values: ["a", 2] }, { property: "test", operator: "not_exists" }] });
  await screen.findByText("usage.tokens");
  await screen.findByText("tokens");
  await screen.findByText('model is one of "a", 2');
  await screen.findByText("test has no value");
  type("Group by", "region");
  await screen.findByText(/counted again: the sum of the property usage.tokens, by region, if model is one of "a", 2 and test has no value/);
});

test("only the changed fields of a meter are sent, and the effect is shown before", async () => {
  details({});
  await screen.findByLabelText("Name");
  await press("Save the meter");
  expect(asked.some(({ name }) => name.startsWith("PATCH"))).toBe(false);
  type("Group by", "model\n\n region ");
  await screen.findByText(/All events are counted again: the sum of their values, by model, region/);
  answers["PATCH /v1/meters/calls"] = () => [200, { ...meter, group_by: ["model", "region"], status: "backfilling", backfill: { counted_days: 0, days: 14 }, current: { aggregation: "sum", group_by: [] } }];
  answers["GET /v1/meters/calls"] = answers["PATCH /v1/meters/calls"];
  await press("Save the meter");
  await screen.findByText("backfilling, 0 of 14 days");
  expect(asked.filter(({ name }) => name.startsWith("PATCH")).map(({ body }) => JSON.parse(body))).toEqual([{ group_by: ["model", "region"] }]);
});

test("another user's change is kept by a save of other fields", async () => {
  details({});
  await screen.findByLabelText("Name");
  type("Name", "Requests");
  type("Unit", "calls");
  type("Unit", "");
  answers["GET /v1/meters/calls"] = () => [200, { ...meter, unit: "tokens", filters: [{ property: "model", operator: "eq", values: ["a"] }] }];
  await queries.invalidateQueries({ queryKey: ["meter", "calls"] });
  await screen.findByText('model is "a"');
  expect(screen.queryByText(/counted again/)).toBeNull();
  await press("Save the meter");
  await waitFor(() => expect(sent("PATCH /v1/meters/calls")).toEqual([{ name: "Requests" }]));
});

test("text typed during a save stays in the field", async () => {
  details({});
  await screen.findByLabelText("Name");
  type("Name", "Requests");
  answers["PATCH /v1/meters/calls"] = () => [200, { ...meter, name: "Requests", group_by: ["model"] }];
  answers["GET /v1/meters/calls"] = answers["PATCH /v1/meters/calls"];
  await press("Save the meter");
  type("Unit", "calls");
  await waitFor(() => expect(screen.getByLabelText<HTMLTextAreaElement>("Group by").value).toBe("model"));
  await press("Save the meter");
  await waitFor(() => expect(sent("PATCH /v1/meters/calls")).toEqual([{ name: "Requests" }, { unit: "calls" }]));
});

test("the shown effect includes a filter only when the filter is complete", async () => {
  details({});
  await screen.findByLabelText("Name");
  await press("Add a filter");
  await screen.findByText(/All events are counted again: the sum of their values\./);
  const first = within(await screen.findByRole("group", { name: "Filter 1" }));
  fireEvent.change(first.getByLabelText("Property"), { target: { value: "model" } });
  await screen.findByText(/All events are counted again: the sum of their values\./);
  fireEvent.change(first.getByLabelText("Value"), { target: { value: "a" } });
  await screen.findByText(/All events are counted again: the sum of their values, if model is "a"\./);
});

test("a definition that changes running bills is saved after the user confirms the change", async () => {
  details({});
  await screen.findByLabelText("Name");
  type("Counts", "count");
  answers["PATCH /v1/meters/calls"] = (body) => {
    if (JSON.parse(body).confirm === "token-1") return [200, { ...meter, aggregation: "count" }];
    const [status, refused] = problem(409, "The meter's definition changes bills");
    const period = { start: "2026-10-31T23:00:00Z", end: "2026-11-30T23:00:00Z", customers: 2 };
    return [status, { ...refused, code: "confirmation_required", confirmation: { token: "token-1", customers: 2, periods: [period], changes: [], uncounted: [], as_of: "2026-11-12T09:30:00Z" } }];
  };
  await press("Save the meter");
  await screen.findByText("Change the running bills");
  answers["GET /v1/meters/calls"] = () => [200, { ...meter, aggregation: "count" }];
  await press("Change the bills");
  await waitFor(() => expect(sent("PATCH /v1/meters/calls").at(-1)).toEqual({ aggregation: "count", confirm: "token-1" }));
});

test("changing one filter keeps every digit in the values of the others", async () => {
  details({ filters: [{ property: "id", operator: "gt", values: [new LosslessNumber("12345678901234567890")] }, { property: "model", operator: "eq", values: ["7"] }] });
  await screen.findByText("id is greater than 12345678901234567890");
  const second = within(await screen.findByRole("group", { name: "Filter 2" }));
  second.getByText('Understood as the text "7"');
  fireEvent.change(second.getByLabelText("Value"), { target: { value: "7" } });
  await press("Save the meter");
  await waitFor(() => expect(asked.some(({ name }) => name.startsWith("PATCH"))).toBe(true));
  expect(asked.find(({ name }) => name.startsWith("PATCH"))!.body).toBe('{"filters":[{"property":"id","operator":"gt","values":[12345678901234567890]},{"property":"model","operator":"eq","values":[7]}]}');
});

test("leaving the form asks first if a filter was removed", async () => {
  details({ filters: [{ property: "model", operator: "eq", values: ["a"] }] });
  await screen.findByText("Understood as the text \"a\"");
  await press("Remove filter 1");
  fireEvent.click(await screen.findByRole("link", { name: "Prices" }));
  await screen.findByText("Discard your changes?");
});

test("changing the unit does not count events again", async () => {
  details({});
  await screen.findByLabelText("Unit");
  type("Unit", "calls");
  expect(screen.queryByText(/counted again/)).toBeNull();
  await press("Save the meter");
  await waitFor(() => expect(sent("PATCH /v1/meters/calls")).toEqual([{ unit: "calls" }]));
});

test("trying a changed definition shows its total and the current definition's total", async () => {
  details({ unit: "calls" });
  await screen.findByLabelText("Name");
  type("Counts", "count");
  const period = { start: "2026-11-26T08:00:00Z", end: "2026-11-26T09:00:00Z" };
  answers["POST /v1/meters/calls/preview"] = () => [200, { period, events_read: 3, counted: 3, value: 3, current_value: 12.5, uncounted: [], customers: [], other_customers: 0, sample: [{ id: "1", customer_id: "acme", timestamp: "2026-11-26T08:50:00Z", rule: "counted", value: 4, group_key: {} }] }];
  await press("Try it on the latest 100 events");
  expect((await screen.findByText("Total now")).nextSibling?.textContent).toBe("12.5 calls");
  expect((await screen.findByText("Total then")).nextSibling?.textContent).toBe("3 calls");
  expect(sent("POST /v1/meters/calls/preview")).toEqual([{ aggregation: "count", value_property: "", filters: [], group_by: [] }]);
  expect(screen.queryByRole("columnheader", { name: "Value" })).toBeNull();
  answers["PATCH /v1/meters/calls"] = () => [200, { ...meter, aggregation: "count" }];
  await press("Save the meter");
  await waitFor(() => expect(screen.queryByText("Total now")).toBeNull());
});
