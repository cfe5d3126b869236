import { expect, test } from "vitest";
import { usable } from "./steps";

test("a key that is revoked, or only reads, sends no event", () => {
  expect(usable([])).toBe(false);
  expect(usable([{ scope: "read_only", revoked_at: null }, { scope: "admin", revoked_at: "2026-11-01T00:00:00Z" }])).toBe(false);
  expect(usable([{ scope: "ingest_only", revoked_at: null }])).toBe(true);
});
