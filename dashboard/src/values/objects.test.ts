import { expect, test } from "vitest";
import { parse } from "lossless-json";
import { objectText, parseObject } from "./objects";

test("a number keeps every digit", () => {
  const text = '{\n  "account": 12345678901234567890.10\n}';
  const typed = parseObject(text);
  expect("object" in typed && objectText(typed.object)).toBe(text);
  expect(objectText(parse(text))).toBe(text);
});

test("an empty text is an empty object, and other JSON is refused", () => {
  expect(parseObject(" ")).toEqual({ object: {} });
  for (const text of ["[1]", "1", "null", '"x"']) expect(parseObject(text)).toEqual({ wrong: "Must be a JSON object" });
  expect(parseObject("{")).toEqual({ wrong: "Must be valid JSON" });
});
