// Verifies real statements, and wrong copies of them. The results must equal those of the other clients.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { StatementError, verifyStatement } from "./client.js";

const testdata = new URL("../../testdata/", import.meta.url); // relative to dist
const statements = readFileSync(new URL("statements.jsonl", testdata), "utf8").trimEnd().split("\n");
const results = JSON.parse(readFileSync(new URL("statements.json", testdata), "utf8")) as {
  unnoticed: string[];
  removable: string[];
  refused?: { changes: [string, string][]; message: string }[];
}[];
const number = /(?:"name":"(\w+)",)?"(usage|unit_price|amount|event_count|above|up_to)":(-?[0-9.]+)/g;

test("each change of an amount is noticed", () => {
  assert.equal(statements.length, results.length);
  for (const [i, statement] of statements.entries()) {
    verifyStatement(statement);
    const unnoticed: string[] = [];
    for (const [n, { index, 0: match, 1: step, 2: field, 3: stated = "" }] of [...statement.matchAll(number)].entries()) {
      const end = index + match.length;
      try {
        verifyStatement(statement.slice(0, end - stated.length) + increased(stated) + statement.slice(end));
        unnoticed.push(`${n} ${step ?? field}`);
      } catch (error) {
        assert.ok(error instanceof StatementError, String(error));
      }
    }
    assert.deepEqual(unnoticed, results[i]?.unnoticed);
  }
});

/** Returns the number plus one unit of its last digit. */
function increased(stated: string): string {
  const [whole = "", fraction = ""] = stated.split(".");
  const digits = BigInt(whole + fraction) + 1n;
  const padded = (digits < 0n ? -digits : digits).toString().padStart(fraction.length + 1, "0");
  const point = padded.length - fraction.length;
  return `${digits < 0n ? "-" : ""}${padded.slice(0, point)}${fraction && "."}${padded.slice(point)}`;
}

const leaf = /\{"name":"(\w+)"[^{}]*\}/g;

test("each missing step is noticed", () => {
  for (const [i, statement] of statements.entries()) {
    const removable: string[] = [];
    for (const [n, { index, 0: match, 1: step }] of [...statement.matchAll(leaf)].entries()) {
      const [before, after] = [statement.slice(0, index), statement.slice(index + match.length)];
      try {
        verifyStatement(after.startsWith(",") ? before + after.slice(1) : before.replace(/,$/, "") + after);
        removable.push(`${n} ${step}`);
      } catch (error) {
        assert.ok(error instanceof StatementError, String(error));
      }
    }
    assert.deepEqual(removable, results[i]?.removable);
  }
});

test("wrong statements are refused with the messages of the other clients", () => {
  assert.notEqual(results[0]?.refused?.length ?? 0, 0);
  for (const [i, { refused = [] }] of results.entries()) {
    for (const { changes, message } of refused) {
      const wrong = changes.reduce((statement, [before, after]) => statement.replaceAll(before, () => after), statements[i] ?? "");
      assert.throws(() => verifyStatement(wrong), { message });
    }
  }
});

test("a text that is not a statement is refused", () => {
  for (const body of ["", "[]", "null", '{"type":"ping"}']) assert.throws(() => verifyStatement(body));
});
