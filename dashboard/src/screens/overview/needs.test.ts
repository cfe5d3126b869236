import { expect, test } from "vitest";
import { newestOfEach, urgent } from "./needs";

const nothing = { holds: [], syncs: [], lines: [], audits: [], webhooks: [] };

test("of what needs somebody, the nearest deadline comes first, and then what no longer reports", () => {
  const hold = (id: string, deadline: string) => ({ id, invoice_id: `in_${id}`, external_id: "acme", looked_at: null, deadline }) as never;
  const sync = { id: "s", external_id: "contoso", error: "the receiver answered 401", finished_at: "2026-11-01T00:00:00Z" } as never;
  const found = urgent({ ...nothing, holds: [hold("late", "2026-11-20T00:00:00Z"), hold("soon", "2026-11-19T00:00:00Z")], syncs: [sync] });
  expect(found.map(({ what, who }) => [what, who])).toEqual([
    ["Invoice in_soon", "acme"],
    ["Invoice in_late", "acme"],
    ["the receiver answered 401", "contoso"],
  ]);
});

test("a webhook that works needs nobody", () => {
  const webhook = (id: string, failing_since: string | null) => ({ id, url: `https://${id}.example.com`, failing_since }) as never;
  const found = urgent({ ...nothing, webhooks: [webhook("works", null), webhook("fails", "2026-11-01T00:00:00Z")] });
  expect(found.map(({ what }) => what)).toEqual(["https://fails.example.com"]);
});

test("of several syncs of a customer the newest counts", () => {
  const sync = (id: string, customer_id: string) => ({ id, customer_id }) as never;
  expect(newestOfEach([sync("3", "cus_1"), sync("2", "cus_2"), sync("1", "cus_1")]).map(({ id }) => id)).toEqual(["3", "2"]);
});
