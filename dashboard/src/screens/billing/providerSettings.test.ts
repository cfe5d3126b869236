import { expect, test } from "vitest";
import { mappingOf, writtenMapping, wrongMapping } from "./providerSettings";

test("a mapping that was written as text is read again unchanged", () => {
  const mapping = { "api-calls": "price_1", storage: "price_2" };
  expect(mappingOf(writtenMapping(mapping))).toEqual(mapping);
  expect(mappingOf(" api-calls = price_1 \n\n storage: price_2\n")).toEqual(mapping);
});

test("the error names a line that is not a slug and a price, and a meter with two prices", () => {
  expect(["", "api-calls price_1\n\nstorage: price_2"].map(wrongMapping)).toEqual([undefined, undefined]);
  expect(wrongMapping("api-calls price_1\nnope")).toBe("“nope”: write only the meter's slug, a space and the price's id on each line");
  expect(wrongMapping("api-calls price_1 price_2")).toContain("“api-calls price_1 price_2”");
  expect(wrongMapping("calls price_1\ncalls price_2")).toBe("“calls” is listed twice");
});
