import { expect, test } from "vitest";
import { csv } from "./csv";

test("cells with quotes, commas and line breaks are quoted", () => {
  expect(csv([["a", 'say "hi"', "x,y", "two\nlines"]])).toBe('a,"say ""hi""","x,y","two\nlines"\r\n');
});

test("a number is unchanged, and text that could be a formula begins with a guard", () => {
  expect(csv([["-1250.50", "-1+1", "=1", "a;@b", "2026-11-01T00:00:00Z"]])).toBe("-1250.50,'-1+1,'=1,a;'@b,2026-11-01T00:00:00Z\r\n");
});

test("the text of a cell is restored by removing the guards", () => {
  const characters = ["'", "=", "-", "＠", ";", "|", "\t", "1", "."];
  for (let length = 0, texts = [""]; length < 5; length++, texts = texts.flatMap((text) => characters.map((c) => text + c))) {
    for (const text of texts) {
      const cell = csv([[text]]).slice(0, -2);
      expect(cell.replace(/(^|[;|\t\r\n])'/g, "$1")).toBe(text);
    }
  }
});
