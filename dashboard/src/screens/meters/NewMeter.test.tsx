import { fireEvent, screen, waitFor, within } from "@testing-library/react";
import { LosslessNumber } from "lossless-json";
import { expect, test } from "vitest";
import { answers, asked, open, press, sent, session, type } from "../../testing";

async function form() {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["meters:read", "meters:write", "events:read"] }];
  open("/meters/-/new");
  await screen.findByLabelText("Slug");
}

const filter = (number: number) => within(screen.getByRole("group", { name: `Filter ${number}` }));
const fill = (number: number, label: string, text: string) => fireEvent.change(filter(number).getByLabelText(label), { target: { value: text } });
const refused = (...errors: object[]) => [422, { title: "Invalid", detail: "refused", status: 422, code: "invalid", request_id: "REQUEST7", errors }] as [number, object];

test("a meter is created with every field of its definition", async () => {
  await form();
  type("Slug", "tokens");
  type("Event type", "llm");
  type("Unit", "tokens");
  type("Value property", "usage.total_tokens");
  type("Group by", "model\nregion");
  await press("Add a filter");
  fill(1, "Property", "model");
  fill(1, "Condition", "in");
  fill(1, "Values, one per line", 'large\n7\n"7"\ntrue');
  filter(1).getByText('Understood as the text "large", the number 7, the text "7", true');
  await press("Add a filter");
  fill(2, "Property", "usage.cached");
  fill(2, "Condition", "not_exists");
  expect(filter(2).queryByLabelText("Value")).toBeNull();
  await press("Create the meter");
  await waitFor(() => expect(sent("POST /v1/meters")).toHaveLength(1));
  expect(sent("POST /v1/meters")).toEqual([
    {
      slug: "tokens",
      event_type: "llm",
      name: "",
      unit: "tokens",
      aggregation: "sum",
      value_property: "usage.total_tokens",
      filters: [
        { property: "model", operator: "in", values: ["large", 7, "7", true] },
        { property: "usage.cached", operator: "not_exists" },
      ],
      group_by: ["model", "region"],
      usage_scale: 0,
    },
  ]);
});

test("a number in a filter is sent with every digit", async () => {
  await form();
  type("Slug", "large");
  type("Event type", "call");
  await press("Add a filter");
  fill(1, "Property", "id");
  fill(1, "Value", "12345678901234567890.10");
  await press("Create the meter");
  await waitFor(() => expect(asked.find(({ name }) => name === "POST /v1/meters")?.body).toContain('"values":[12345678901234567890.10]'));
});

test("adding a filter focuses its first field, and removing one focuses the button Add a filter", async () => {
  await form();
  await press("Add a filter");
  expect(document.activeElement).toBe(filter(1).getByLabelText("Property"));
  fill(1, "Property", "first");
  await press("Add a filter");
  fill(2, "Property", "second");
  await press("Remove filter 1");
  expect(document.activeElement).toBe(await screen.findByRole("button", { name: "Add a filter" }));
  expect(filter(1).getByLabelText<HTMLInputElement>("Property").value).toBe("second");
});

test("a meter has at most ten filters", async () => {
  await form();
  for (let count = 0; count < 10; count++) await press("Add a filter");
  expect((await screen.findByRole<HTMLButtonElement>("button", { name: "At most 10 filters" })).disabled).toBe(true);
  await press("Remove filter 10");
  expect(document.activeElement).toBe(await screen.findByRole("button", { name: "Add a filter" }));
});

test("each refused field shows the rule that it broke", async () => {
  await form();
  type("Slug", "tokens");
  type("Event type", "llm");
  for (const number of [1, 2]) {
    await press("Add a filter");
    fill(number, "Property", "size");
    fill(number, "Condition", "gt");
    fill(number, "Value", "large");
  }
  const [unit, value] = ["must be at most 64 characters", "must be a number, because operator is gt"];
  answers["POST /v1/meters"] = () => refused({ location: "body.unit", message: unit }, { location: "body.filters[1].values[0]", message: value });
  await press("Create the meter");
  await waitFor(() => expect(screen.getByLabelText("Unit").getAttribute("aria-invalid")).toBe("true"));
  expect(filter(1).getByLabelText("Value").getAttribute("aria-invalid")).not.toBe("true");
  expect(filter(2).getByLabelText("Value").getAttribute("aria-invalid")).toBe("true");
  filter(2).getByText(value);
});

test("a template fills in the form", async () => {
  await form();
  fireEvent.click(within(await screen.findByRole("group", { name: "Other events" })).getByRole("button", { name: "API calls by endpoint" }));
  expect((await screen.findByLabelText<HTMLInputElement>("Slug")).value).toBe("api-calls");
  expect((await screen.findByLabelText<HTMLSelectElement>("Counts")).value).toBe("count");
  expect((await screen.findByLabelText<HTMLTextAreaElement>("Group by")).value).toBe("endpoint\nmethod");
  filter(1).getByText("Understood as the number 500");
  expect((await screen.findByLabelText("An event")).textContent).toContain('"endpoint": "/v1/search"');
  await screen.findByText(/excludes calls without a status/);
  fireEvent.click(within(await screen.findByRole("group", { name: "OpenAI chat completions" })).getByRole("button", { name: "Input tokens" }));
  expect((await screen.findByLabelText<HTMLInputElement>("Value property")).value).toBe("usage.prompt_tokens");
  expect(screen.queryByRole("group", { name: "Filter 1" })).toBeNull();
});

test("a template asks before it replaces typed text", async () => {
  await form();
  type("Slug", "mine");
  const choose = () => fireEvent.click(screen.getByRole("button", { name: "Cost" }));
  choose();
  await screen.findByText("Discard your changes?");
  await press("Keep editing");
  await waitFor(() => expect(screen.queryByText("Discard your changes?")).toBeNull());
  expect((await screen.findByLabelText<HTMLInputElement>("Slug")).value).toBe("mine");
  choose();
  await screen.findByText("Discard your changes?");
  await press("Discard");
  await waitFor(() => expect(screen.getByLabelText<HTMLInputElement>("Slug").value).toBe("litellm-cost"));
});

test("a filter shows only its first value under eq, and all values again under in", async () => {
  await form();
  await press("Add a filter");
  fill(1, "Condition", "in");
  fill(1, "Values, one per line", "small\nlarge");
  fill(1, "Condition", "eq");
  expect(filter(1).getByLabelText<HTMLInputElement>("Value").value).toBe("small");
  filter(1).getByText('Understood as the text "small"');
  fill(1, "Condition", "in");
  filter(1).getByText('Understood as the text "small", the text "large"');
});

const preview = {
  period: { start: "2026-11-26T08:00:00Z", end: "2026-11-26T09:00:00Z" },
  events_read: 4,
  counted: 2,
  value: new LosslessNumber("0.30000000000000000004"),
  uncounted: [
    { code: "filtered_out", count: 1 },
    { code: "value_missing", count: 1 },
  ],
  customers: [],
  other_customers: 0,
  sample: [
    { id: "1", customer_id: "acme", timestamp: "2026-11-26T08:50:00Z", rule: "counted", value: 0.1, group_key: { account: new LosslessNumber("1234567890123456789") } },
    { id: "2", customer_id: "acme", timestamp: "2026-11-26T08:40:00Z", rule: "filtered_out", property: "model" },
    { id: "3", customer_id: "acme", timestamp: "2026-11-26T08:30:00Z", rule: "value_missing", property: "cost" },
  ],
};

test("a definition is tried on the latest events without creating the meter", async () => {
  await form();
  await press("Try it on the latest 100 events");
  expect(sent("POST /v1/meters/preview")).toEqual([]);
  type("Event type", "llm");
  type("Unit", "USD");
  type("Value property", "cost");
  answers["POST /v1/meters/preview"] = () => [200, preview];
  await press("Try it on the latest 100 events");
  await screen.findByText("2 of 4 events");
  expect(sent("POST /v1/meters/preview")).toEqual([{ event_type: "llm", aggregation: "sum", value_property: "cost", filters: [], group_by: [] }]);
  expect((await screen.findByText("0.30000000000000000004")).textContent).toBe("0.30000000000000000004 USD");
  const rows = within(await screen.findByRole("table")).getAllByRole("row").slice(1);
  expect(rows.map((row) => within(row).getAllByRole("cell").map((cell) => cell.textContent))).toEqual([
    ["26 Nov 2026, 09:50acme", "Counted1234567890123456789", "0.1"],
    ["26 Nov 2026, 09:40acme", "Excluded by a filtermodel", ""],
    ["26 Nov 2026, 09:30acme", "Missing or nullcost", ""],
  ]);
  type("Value property", "price");
  await screen.findByText("The definition has changed since. Try it again.");
  expect(sent("POST /v1/meters")).toEqual([]);
});

test("a field that the preview refuses is marked", async () => {
  await form();
  type("Event type", "llm");
  type("Group by", "a..b");
  answers["POST /v1/meters/preview"] = () => refused({ location: "body.group_by[0]", message: "must be a path" });
  await press("Try it on the latest 100 events");
  await waitFor(() => expect(screen.getByLabelText("Group by").getAttribute("aria-invalid")).toBe("true"));
});

test("the refusal of a preview is still shown after an edit, but no longer at the field", async () => {
  await form();
  type("Event type", "llm");
  type("Group by", "a..b");
  answers["POST /v1/meters/preview"] = () => refused({ location: "body.group_by[0]", message: "must be a path" });
  await press("Try it on the latest 100 events");
  type("Unit", "tokens");
  type("Value property", "cost");
  await within(await screen.findByRole("region", { name: "Try it" })).findByRole("alert");
  expect((await screen.findByLabelText("Group by")).getAttribute("aria-invalid")).not.toBe("true");
});
