import { expect, test } from "vitest";
import { groupText, valueText } from "./groups";

test("values that differ have different texts", () => {
  const texts = [7, "7", true, "true", null, "null", "none", "", "large", [1, 2], "[1,2]", { a: 1 }].map(valueText);
  expect(texts).toEqual(["7", '"7"', "true", '"true"', "none", '"null"', '"none"', '""', "large", "[1,2]", '"[1,2]"', '{"a":1}']);
});

test("a group's text has its values in the order of its properties", () => {
  expect(groupText({ model: "large", region: null })).toBe("large · none");
  expect(groupText({ $other: true })).toBe("unknown values");
  expect(groupText({})).toBe("all usage");
});
