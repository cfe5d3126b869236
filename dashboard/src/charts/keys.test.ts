import { expect, test } from "vitest";
import { moved } from "./keys";

test("the arrows walk along, begin at the nearer end, and stay", () => {
  expect(moved("ArrowRight", null, 9)).toBe(0);
  expect(moved("ArrowLeft", null, 9)).toBe(9);
  expect(moved("ArrowLeft", 0, 9)).toBe(0);
  expect(moved("PageDown", 3, 9)).toBe(9);
  expect(moved("Home", 3, 9)).toBe(0);
  expect(moved("End", 3, 9)).toBe(9);
  expect(moved("Tab", 3, 9)).toBeUndefined();
});
