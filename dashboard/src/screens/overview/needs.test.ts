import { expect, test } from "vitest";
import { newestOfEach, urgent } from "./needs";

const nothing = { holds: [], syncs: [], running: [], lines: [], audits: [], webhooks: [], meters: [] };

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

test("what waits comes last, and of what goes on nothing is said", () => {
  const run = (id: string, more: object) => ({ id, external_id: id, last_error: "", started_at: "2026-11-01T00:00:00Z", ...more }) as never;
  const meter = (slug: string, more: object) => ({ id: slug, slug, status: "active", ...more }) as never;
  const found = urgent({
    ...nothing,
    running: [run("goes-on", {}), run("waits", { last_error: "Stripe answered 503" }), run("stopped", { last_error: "Stripe answered 503", pause: { reason: "a question", since: "2026-11-02T00:00:00Z" } })],
    webhooks: [{ id: "hook", url: "https://fails.example.com", failing_since: "2026-11-01T00:00:00Z" } as never],
    meters: [meter("counts", {}), meter("new", { status: "backfilling", backfill: { counted_days: 3, days: 9 } })],
  });
  expect(found.map(({ what, means, state }) => [what, means, state])).toEqual([
    ["https://fails.example.com", "bad", "fails"],
    ["Stripe answered 503", "waiting", "tried again"],
    ["Paused: a question", "off", "paused"],
    ["Past of new", "waiting", "being counted, 3 of 9 days"],
  ]);
});
