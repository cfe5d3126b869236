import { expect, test } from "vitest";
import { filterAddress, filtersOf } from "./filters";

test("an address keeps several values of a property, with any characters", () => {
  const filters = { model: ["large", '"7"', "a&b=c", ""], region: ["eu"] };
  expect(filtersOf(filterAddress(filters), ["model", "region"])).toEqual(filters);
  expect(filterAddress({ model: ["large", "small"] })).toBe("model=large&model=small");
});

test("filters by properties that the meter lacks are dropped, and no filters have no address", () => {
  expect(filtersOf("model=large&user=1", ["model"])).toEqual({ model: ["large"] });
  expect(filtersOf(undefined, ["model"])).toEqual({});
  expect(filterAddress({ model: [] })).toBeUndefined();
});
