import { expect, test } from "vitest";
import { ended, expiry, stateOf } from "./lifetimes";

const now = new Date("2026-11-23T10:00:00Z");
const lasting = { revoked_at: null, expires_at: null, successor_id: null };

test("a credential is valid until it is revoked or expires", () => {
  expect(stateOf(lasting, now)).toEqual(["good", "valid"]);
  expect(stateOf({ ...lasting, expires_at: "2026-11-23T10:00:00.001Z" }, now)).toEqual(["good", "valid"]);
  expect(stateOf({ ...lasting, expires_at: "2026-11-23T10:00:00Z" }, now)).toEqual(["off", "expired"]);
  expect(stateOf({ ...lasting, revoked_at: "2026-11-22T10:00:00Z" }, now)).toEqual(["off", "revoked"]);
});

test("a replaced credential is valid until the overlap ends", () => {
  const replaced = { ...lasting, successor_id: "key_2", expires_at: "2026-11-23T11:00:00Z" };
  expect(stateOf(replaced, now)).toEqual(["waiting", "replaced"]);
  expect([ended(replaced, now), ended(replaced, new Date("2026-11-23T11:00:00Z"))]).toEqual([false, true]);
});

test("an expiry is a number of days from now, or absent", () => {
  expect(expiry("", now)).toEqual({});
  expect(expiry("30", now)).toEqual({ expires_at: "2026-12-23T10:00:00.000Z" });
});
