import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient, parseExactly } from "./client.js";

const precise = "123456789012345678.123456789012";

function respond(status: number, body: string) {
  const fetch = () => Promise.resolve(new Response(body, { status, headers: { "Content-Type": "application/json" } }));
  return createClient({ baseUrl: "http://127.0.0.1", fetch });
}

test("the charges of a confirmation and of a preview keep their digits", async () => {
  const path = { slug: "calls" };
  const body = { overage_rate: "1" };
  const charges = `"currency":"USD","before":20.00,"after":${precise}`;
  const refused = respond(409, `{"code":"confirmation_required","confirmation":{"token":"t","changes":[{${charges},"customers":1}]}}`);
  const { error } = await refused.PUT("/v1/meters/{slug}/pricing", { params: { path }, body });
  const change = error?.confirmation?.changes[0];
  assert.deepEqual([change?.before, change?.after, change?.customers], ["20.00", precise, 1]);
  const previewed = respond(200, `{"changes":[{${charges},"customers":1,"largest":[{"external_id":"acme","before":0.1,"after":${precise}}]}]}`);
  const { data } = await previewed.POST("/v1/meters/{slug}/pricing/preview", { params: { path }, body });
  assert.deepEqual(data?.changes[0]?.before, "20.00");
  assert.deepEqual(data?.changes[0]?.largest[0], { external_id: "acme", before: "0.1", after: precise });
});

test("the changed fields of an audit entry keep their types", async () => {
  const client = respond(200, `{"data":[{"before":null,"after":{"limit":5,"before":1.5,"name":"7"}}]}`);
  const { data } = await client.GET("/v1/audit-log");
  assert.deepEqual([data?.data[0]?.before, data?.data[0]?.after], [null, { limit: 5, before: 1.5, name: "7" }]);
});

test("a list of decimals keeps its digits", () => {
  assert.deepEqual(parseExactly(`{"thresholds":[1,${precise}],"match":{"value":[7]}}`), { thresholds: ["1", precise], match: { value: [7] } });
});
