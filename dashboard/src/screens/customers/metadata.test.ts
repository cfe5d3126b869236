import { expect, test } from "vitest";
import { parse } from "lossless-json";
import { metadataOf, written } from "./metadata";

test("a number keeps every digit", () => {
  const text = '{\n  "account": 12345678901234567890.10\n}';
  const typed = metadataOf(text);
  expect("metadata" in typed && written(typed.metadata)).toBe(text);
  expect(written(parse(text))).toBe(text);
});

test("nothing is an empty object, and what is none is refused", () => {
  expect(metadataOf(" ")).toEqual({ metadata: {} });
  for (const text of ["[1]", "1", "null", '"x"']) expect(metadataOf(text)).toEqual({ wrong: "Must be a JSON object" });
  expect(metadataOf("{")).toEqual({ wrong: "Must be valid JSON" });
});
