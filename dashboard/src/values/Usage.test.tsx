import { readdirSync, readFileSync } from "node:fs";
import { fireEvent, screen, within } from "@testing-library/react";
import { expect, test } from "vitest";
import { answers, list, open, session } from "../testing";

const meter = { id: "mtr_1", slug: "tokens", name: "", event_type: "completion", aggregation: "sum", group_by: [], value_property: "", filters: [], unit: "tokens", usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null };
const period = { id: null, start: "2026-10-31T23:00:00Z", end: "2026-11-30T23:00:00Z", due_at: "2026-12-03T23:00:00Z", closed_at: null, state: "open" };
const step = (name: string, amount: number, unit = "units") => ({ name, amount, unit, description: name });
const steps = [step("usage", 1250), step("included_units", 1000), step("overage_units", 250), ...["overage_rate", "overage_charge", "base_price", "exact_charge", "charge"].map((name) => step(name, 0, "USD"))];

test("a bill and its breakdowns show the unit of each meter", async () => {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["billing:read", "customers:read", "meters:read"] }];
  answers["GET /v1/meters"] = () => [200, list(meter)];
  answers["GET /v1/customers/by-id"] = () => [200, { id: "cus_1", external_id: "acme", name: "", metadata: {}, created_at: "2026-11-01T00:00:00Z" }];
  answers["GET /v1/billing/periods"] = () => [200, list(period)];
  answers["GET /v1/billing/preview"] = () => [200, ["tokens", "calls"].map((slug) => ({ meter_id: slug, meter_slug: slug, usage: 1250, unit_price: 0.02, amount: 5, currency: "USD" }))];
  answers["GET /v1/billing/explain"] = () => [200, { steps }];
  open("/customers/cus_1/bill?meter=tokens");
  await screen.findByText("1,250 tokens used");
  const rows = within(await screen.findByRole("table", { name: "Charges of this period so far" })).getAllByRole("row");
  expect(rows.flatMap((row) => within(row).queryAllByText("1,250").map(({ textContent }) => textContent))).toContain("1,250 tokens");
  await screen.findByText("1,000 tokens included, 250 tokens overage");
  expect(screen.getAllByText((_, element) => element?.textContent === "1,250").length).toBeGreaterThan(0); // the meter calls has no unit
  fireEvent.click(await screen.findByRole("button", { name: "calls" }));
  await screen.findByText("1,250 used");
  expect(screen.getAllByText((_, element) => element?.textContent === "1,250 units").length).toBeGreaterThan(0);
});

/**
 * Files of screens with numbers that are not usage of a meter: counts of events and runs, values of events, minutes,
 * and a meter that is not stored.
 */
const unitless = ["alerts/AlertValue.tsx", "billing/AutoSync.tsx", "billing/Discrepancies.tsx", "events/Conflicts.tsx", "events/Details.tsx", "events/Events.tsx", "events/Rejected.tsx", "meters/TryOut.tsx", "overview/EventCounts.tsx"];

test("screens show the usage of meters with the component Usage, and not with Quantity", () => {
  const screens = `${import.meta.dirname}/../screens`;
  const files = readdirSync(screens, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".tsx") && !name.includes(".test."));
  expect(files.filter((name) => readFileSync(`${screens}/${name}`, "utf8").includes("<Quantity")).sort()).toEqual(unitless);
});
