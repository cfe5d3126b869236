import { expect, test } from "vitest";
import { mappingOf, newWebhookSecret, writtenMapping } from "./providerSettings";

test("a mapping is read as it was written", () => {
  const mapping = { "api-calls": "price_1", storage: "price_2" };
  expect(mappingOf(writtenMapping(mapping))).toEqual(mapping);
  expect(mappingOf(" api-calls = price_1 \n\n storage: price_2\n")).toEqual(mapping);
  expect(mappingOf("api-calls")).toEqual({ "api-calls": "" });
});

test("a secret is whsec_ and 32 bytes, another one each time", () => {
  const [one, other] = [newWebhookSecret(), newWebhookSecret()];
  expect(one).toMatch(/^whsec_[A-Za-z0-9+/]{43}=$/);
  expect(one).not.toBe(other);
});
