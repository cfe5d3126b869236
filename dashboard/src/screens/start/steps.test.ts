import { expect, test } from "vitest";
import { usable } from "./steps";

test("a key is usable if it is not revoked and can send events", () => {
  expect(usable([])).toBe(false);
  expect(usable([{ scope: "read_only", revoked_at: null }, { scope: "admin", revoked_at: "2026-11-01T00:00:00Z" }])).toBe(false);
  expect(usable([{ scope: "ingest_only", revoked_at: null }])).toBe(true);
});
