import { LosslessNumber, parse, stringify } from "lossless-json";
import { expect, test } from "vitest";
import { parseValue, typedValue, valueText } from "./filterValues";

test.each([
  ["large", '"large"'],
  ["7", "7"],
  ["-1.50e3", "-1.50e3"],
  ["123456789012345678901.5", "123456789012345678901.5"],
  ["07", '"07"'],
  ["+7", '"+7"'],
  [".5", '".5"'],
  ["true", "true"],
  ["false", "false"],
  ["True", '"True"'],
  ["null", "null"],
  ['"7"', '"7"'],
  ['"a\\nb"', '"a\\nb"'],
  ['""', '""'],
  ['"open', '"\\"open"'],
  ['"a"b', '"\\"a\\"b"'],
  ["[1,2]", '"[1,2]"'],
])("the text %s is parsed to the value %s", (text, json) => {
  expect(stringify(parseValue(text))).toBe(json);
});

test.each(["large", "7", "true", "null", '"7"', "", " padded ", "two\nlines", "two\rlines", '"', "é", "[1]"])("the string %j is shown as a text that is parsed to the same string", (value) => {
  const text = valueText(value);
  expect(text).not.toMatch(/[\r\n]/);
  expect(parseValue(text.trim())).toBe(value);
});

test.each(["7", "0.1", "12345678901234567890.123", "true"])("the value %s is shown unchanged", (json) => {
  expect(valueText(parse(json))).toBe(json);
});

test("a value is described with its type", () => {
  expect(typedValue("7")).toBe('the text "7"');
  expect(typedValue(new LosslessNumber("7.0"))).toBe("the number 7.0");
  expect(typedValue(true)).toBe("true");
});
