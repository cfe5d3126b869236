import { screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { answers, asked, open, press, session, type } from "../../testing";

const meter = { id: "mtr_1", slug: "calls", name: "Calls", event_type: "call", aggregation: "sum", group_by: [], usage_scale: 0, status: "complete", created_at: "2026-11-01T00:00:00Z", archived_at: null, counted_from: null };

function details(more: object) {
  answers["GET /v1/auth/session"] = () => [200, { ...session, permissions: ["meters:read", "meters:write"] }];
  answers["GET /v1/meters/calls"] = () => [200, { ...meter, ...more }];
  open("/meters/calls/details");
}

test("a meter says how many days of its past are counted", async () => {
  details({ status: "backfilling", backfill: { counted_days: 3, days: 14 } });
  await screen.findByText("backfilling, 3 of 14 days");
  screen.getByText(/3 of 14 days are done/);
});

test("what is changed of a meter is sent, and nothing else; what it will do is said before", async () => {
  details({});
  await screen.findByLabelText("Name");
  press("Save the meter");
  expect(asked.some(({ name }) => name.startsWith("PATCH"))).toBe(false);
  type("Group by", "model\n\n region ");
  screen.getByText(/All events are counted anew: the sum of their values, by model, region/);
  answers["PATCH /v1/meters/calls"] = () => [200, { ...meter, group_by: ["model", "region"], status: "backfilling", backfill: { counted_days: 0, days: 14 }, current: { aggregation: "sum", group_by: [] } }];
  answers["GET /v1/meters/calls"] = answers["PATCH /v1/meters/calls"];
  press("Save the meter");
  await screen.findByText("backfilling, 0 of 14 days");
  expect(asked.filter(({ name }) => name.startsWith("PATCH")).map(({ body }) => JSON.parse(body))).toEqual([{ aggregation: "sum", group_by: ["model", "region"] }]);
});
