import { expect, test } from "vitest";
import { indexAfterKey } from "./keys";

test("the arrow keys move by one, start at one end, and stop at the ends", () => {
  expect(indexAfterKey("ArrowRight", null, 9)).toBe(0);
  expect(indexAfterKey("ArrowLeft", null, 9)).toBe(9);
  expect(indexAfterKey("ArrowLeft", 0, 9)).toBe(0);
  expect(indexAfterKey("PageDown", 3, 9)).toBe(9);
  expect(indexAfterKey("Home", 3, 9)).toBe(0);
  expect(indexAfterKey("End", 3, 9)).toBe(9);
  expect(indexAfterKey("Tab", 3, 9)).toBeUndefined();
});
