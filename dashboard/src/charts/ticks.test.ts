import { expect, test } from "vitest";
import { tick } from "./ticks";

test("the numbers beside an axis differ, however small or large they are", () => {
  expect([0, 5e-10, 1e-9, 1.5e-9].map(tick)).toEqual(["0", "5e-10", "1e-9", "1.5e-9"]);
  expect([0.002, 0.5, 1, 1_250, 20_000, 1.5e9].map(tick)).toEqual(["0.002", "0.5", "1", "1.25k", "20k", "1.5bn"]);
  expect([1.5e16, -2e-7].map(tick)).toEqual(["1.5e16", "-2e-7"]);
});
