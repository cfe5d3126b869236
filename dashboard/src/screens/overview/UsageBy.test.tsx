import { screen, within } from "@testing-library/react";
import { expect, test } from "vitest";
import { answers, asked, list, open, session } from "../../testing";
import { day, nextDay, startOfDay } from "../../values/instants";

const meter = { id: "mtr_1", slug: "tokens", name: "", event_type: "completion", aggregation: "sum", group_by: ["model"], value_property: "", filters: [], unit: "tokens", usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null };
const today = startOfDay(day(new Date(), "Europe/Zurich"), "Europe/Zurich");
const period = { start: startOfDay(nextDay(day(today, "Europe/Zurich"), -59), "Europe/Zurich"), end: startOfDay(nextDay(day(today, "Europe/Zurich")), "Europe/Zurich") };
const windows = (value: number) => [{ window_start: today, window_end: today, value, late_value: 0.5, is_final: false }];

function overview(address: string, breakdown: (query: URLSearchParams) => object[]) {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["usage:read", "meters:read"] }];
  answers["GET /v1/meters"] = () => [200, list(meter)];
  answers["GET /v1/usage/daily"] = () => [200, { period, meters: [{ meter_id: "mtr_1", meter_slug: "tokens", total: 7, days: [{ start: today, end: period.end, usage: 7 }] }] }];
  answers["GET /v1/usage/breakdown"] = () => [200, { ...list(...breakdown(new URL(asked.at(-1)!.url).searchParams)), period, total: 0 }];
  open(address);
}

const cells = () => within(screen.getByRole("table", { name: "Usage of tokens in the last 30 days" })).getAllByRole("row").slice(1).map((row) => within(row).getAllByRole("cell").map(({ textContent }) => textContent));

test("each of the largest customers is a line, and all others share one line", async () => {
  overview("/overview?by=customer", (query) => (query.has("by") ? [{ customer: "a&b", value: 4 }, { value: 3.5, other: true }] : [{ window_start: today, value: 8 }]));
  answers["GET /v1/usage"] = () => [200, { ...list(), groups: [{ group_key: {}, subtotal: 4.5, filter: "", windows: windows(4) }], period, total: 4.5 }];
  await screen.findByText("chart of a&b, all others in tokens");
  expect(cells()).toEqual([["a&b", "4.5 tokens"], ["all others", "3.5 tokens"]]);
  const { searchParams } = new URL(asked.find(({ name }) => name === "GET /v1/usage")!.url);
  expect(Object.fromEntries(searchParams)).toMatchObject({ customer: "a&b", meter: "tokens", granularity: "day", group_by: "" });
  expect((await screen.findByRole("link", { name: "Usage of each day" })).getAttribute("href")).toBe("/usage?meter=tokens&range=30&by=customer&granularity=day");
});

test("each of the largest values of a property is a line, and unknown values are part of the others", async () => {
  const largest = [{ group_key: { model: null }, value: 5 }, { group_key: { $other: true }, value: 2 }, { group_key: { model: "7" }, value: 1 }];
  overview("/overview?by=model", (query) => {
    if (query.has("limit")) return largest;
    if (!query.has("by")) return [{ window_start: today, value: 8.5 }];
    expect(query.getAll("filter.model")).toEqual(["null", '"7"']);
    return [{ group_key: { model: "7" }, window_start: today, value: 1 }, { group_key: { model: null }, window_start: today, value: 5 }];
  });
  await screen.findByText('chart of none, "7", all others in tokens');
  expect(cells()).toEqual([["none", "5 tokens"], ['"7"', "1 tokens"], ["all others", "2.5 tokens"]]);
});

test("too many values have a link to their rows in place of a chart", async () => {
  overview("/overview?by=plan", () => []);
  answers["GET /v1/usage/breakdown"] = () => [200, { data: [{ plan: "pro", window_start: today, value: 1 }], has_more: true, next_page_token: "more", period, total: 1 }];
  await screen.findByText("There are too many values for a chart by day.");
  await screen.findByRole("link", { name: "Usage of each day" });
});

test("without a dimension, the chart has one line of all customers, with the unit", async () => {
  overview("/overview", () => []);
  await screen.findByText("chart of last 30 days in tokens");
  await screen.findByText("7", { exact: true });
  expect(asked.map(({ name }) => name)).not.toContain("GET /v1/usage/breakdown");
});
