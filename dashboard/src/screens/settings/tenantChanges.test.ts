import { expect, test } from "vitest";
import { changeOf, effects, typedOf } from "./tenantChanges";

const tenant = {
  id: "ten_1",
  name: "Acme",
  timezone: "Europe/Zurich",
  currency: "CHF",
  grace_hours: 72,
  late_policy: "adjust" as const,
  requests_per_minute: 1000,
  strict: false,
  idempotency_conflicts: "accept" as const,
  v1_bodyless_writes: false,
  invoice_hold: { enabled: false, deadline_hours: 48 },
  created_at: "2026-11-01T00:00:00Z",
};

test("only changed settings are sent", () => {
  const typed = typedOf(tenant);
  expect(changeOf(tenant, typed)).toEqual({});
  expect(changeOf(tenant, { ...typed, name: "Acme Inc.", graceHours: "0" })).toEqual({ name: "Acme Inc.", grace_hours: 0 });
  expect(changeOf(tenant, { ...typed, hold: true })).toEqual({ invoice_hold: { enabled: true } });
  expect(changeOf(tenant, { ...typed, strict: true, holdHours: "24" })).toEqual({ strict: true, invoice_hold: { deadline_hours: 24 } });
});

test("each changed setting with an effect is explained", () => {
  expect(effects(tenant, {})).toEqual([]);
  expect(effects(tenant, { name: "Acme Inc." })).toEqual([]);
  expect(effects(tenant, changeOf(tenant, { ...typedOf(tenant), conflicts: "reject" }))).toEqual(["An event that reuses a key with other content is rejected."]);
  const said = effects(tenant, { strict: false, grace_hours: 0, timezone: "UTC" });
  expect(said).toHaveLength(3);
  expect(said[0]).toContain("in days and months of UTC");
  expect(said[1]).toContain("close 0 hours after their end");
  expect(said[2]).toContain("creates its customer");
});
