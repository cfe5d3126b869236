import { LosslessNumber } from "lossless-json";
import { expect, test } from "vitest";
import { propertyAt } from "./counting";

test.each<[string, object, string, unknown]>([
  ["a nested property", { usage: { total: 5 } }, "usage.total", 5],
  ["a whole name before a path", { "usage.total": 1, usage: { total: 2 } }, "usage.total", 1],
  ["a whole name with null", { "usage.total": null, usage: { total: 2 } }, "usage.total", null],
  ["no whole name inside an object", { a: { "b.c": 1 } }, "a.b.c", undefined],
  ["no item of an array", { usage: [5] }, "usage.0", undefined],
  ["no part of a number", { usage: new LosslessNumber("1.0") }, "usage.value", undefined],
  ["no inherited property", { usage: {} }, "usage.constructor", undefined],
  ["no property of null", { usage: null }, "usage.total", undefined],
])("propertyAt finds %s", (_, properties, path, value) => {
  expect(propertyAt(properties, path)).toEqual(value);
});
