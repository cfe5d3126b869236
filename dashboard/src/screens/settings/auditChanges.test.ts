import { expect, test } from "vitest";
import { changes, readEntries } from "./auditChanges";

test("changed numbers keep every digit, and a nested field is named with its path", () => {
  const page = readEntries(
    `{"data":[{"id":"aud_2","before":{"base_price":100000000000000000.000000000001,"hold":{"enabled":false,"deadline_hours":24}},"after":{"base_price":1.10,"hold":{"enabled":true,"deadline_hours":24}}}],"has_more":false,"next_page_token":null}`,
  );
  const [entry] = page.data;
  expect(changes(entry?.before, entry?.after)).toEqual([
    { field: "base_price", before: "100000000000000000.000000000001", after: "1.10" },
    { field: "hold.enabled", before: "false", after: "true" },
    { field: "hold.deadline_hours", before: "24", after: "24" },
  ]);
});

test("a created or deleted resource has values only after or only before the change", () => {
  expect(changes(undefined, { name: "Ada", role: null })).toEqual([
    { field: "name", after: "Ada" },
    { field: "role", after: "none" },
  ]);
  expect(changes({ group_by: ["model"], address: {} }, undefined)).toEqual([
    { field: "group_by", before: '["model"]' },
    { field: "address", before: "{}" },
  ]);
});

test("a secret is shown only as set", () => {
  expect(changes(undefined, { token: { set: true } })).toEqual([{ field: "token.set", after: "true" }]);
});
