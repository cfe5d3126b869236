import { expect, test } from "vitest";
import { mappingOf, writtenMapping } from "./providerSettings";

test("a mapping is read as it was written", () => {
  const mapping = { "api-calls": "price_1", storage: "price_2" };
  expect(mappingOf(writtenMapping(mapping))).toEqual(mapping);
  expect(mappingOf(" api-calls = price_1 \n\n storage: price_2\n")).toEqual(mapping);
  expect(mappingOf("api-calls")).toEqual({ "api-calls": "" });
});
