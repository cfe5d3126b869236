import { expect, test } from "vitest";
import { dimensionsOf, listed, unlisted } from "./dimensions";

test("a property with the name of another dimension has a prefix", () => {
  const sent = dimensionsOf(["model", "plan", "none", "property.a"]).map(({ sent }) => sent);
  expect(sent).toEqual(["customer", "plan", "model", "property.plan", "property.none", "property.property.a"]);
});

test("names with commas are kept apart in an address", () => {
  for (const names of [["customer", "model"], ["a,b", "a%2Cb", "50%"], ["x"]]) expect(unlisted(listed(names))).toEqual(names);
  expect(listed(["customer", "model"])).toBe("customer,model");
});
