import assert from "node:assert/strict";
import { test } from "node:test";
import { createClient, parseExactly, QuotaExceededError, Quotas, type Schema } from "./client.js";

const { ODOMETER_URL: baseUrl, ODOMETER_API_KEY: apiKey } = process.env;
if (!baseUrl || !apiKey) throw new Error("ODOMETER_URL and ODOMETER_API_KEY name a running API: run go test ./cmd/odometer");
const client = createClient({ baseUrl, apiKey });
const precise = "123456789012345678.123456789012";
const customer = "a/b ?#%é";
const HOUR = 3_600_000; // longer than any test takes, even on a busy machine

const meter = await client.POST("/v1/meters", { body: { slug: "calls", event_type: "call" } });
assert.equal(meter.response.status, 201);
const event: Schema<"Event"> = { event_type: "call", customer_id: customer, value: precise, properties: { value: 5, deep: [{ total: 1.5 }] } };
const sent = await client.POST("/v1/events/batch", { body: { events: [event] } });
assert.equal(sent.data?.accepted, 1);

test("a decimal keeps its digits in every answer", async () => {
  const query = { customer, meter: "calls" };
  const total = await client.GET("/v1/usage/total", { params: { query: { customer } } });
  assert.equal(total.data?.total, precise);
  const usage = await client.GET("/v1/usage", { params: { query } });
  assert.equal(usage.data?.groups[0]?.windows[0]?.value, precise);
  assert.equal(usage.data?.groups[0]?.windows[0]?.is_final, false);
  const comparison = await client.GET("/v1/usage/comparison", { params: { query } });
  assert.deepEqual(comparison.data, { current_total: precise, previous_total: "0", delta: precise, percent_change: "100" });
});

test("an exported event has the value and the properties that were sent", async () => {
  const { data } = await client.GET("/v1/usage/export", { params: { query: { customer } } });
  assert.ok(typeof data === "object");
  assert.equal(data.data[0]?.value, precise);
  assert.deepEqual(data.data[0]?.properties, event.properties);
  const csv = await client.GET("/v1/usage/export", { params: { query: { customer, format: "csv" } }, parseAs: "text" });
  assert.match(csv.data as string, new RegExp(precise.replace(".", "\\.")));
});

test("a price is charged to the last digit", async () => {
  const body = { base_price: "0.000000000001", included_units: "0", overage_rate: "1" };
  const path = { slug: "calls" };
  const { error } = await client.PUT("/v1/meters/{slug}/pricing", { params: { path }, body });
  const changes = error!.confirmation!.changes.map(({ before, after }) => [before, after.slice(0, 21)]);
  assert.deepEqual(changes, [["0", "123456789012345678.12"]]);
  const confirmed = { ...body, confirm: error!.confirmation!.token };
  const priced = await client.PUT("/v1/meters/{slug}/pricing", { params: { path }, body: confirmed });
  assert.equal(priced.data?.current?.base_price, "0.000000000001");
  const { data } = await client.GET("/v1/billing/preview", { params: { query: { customer } } });
  assert.equal(data?.[0]?.amount, "123456789012345678.123456789013");
});

test("decimals in a list keep their digits", async () => {
  const created = await client.POST("/v1/alerts", { body: { name: "Budget", type: "usage", all: true, meter: "calls", thresholds: ["1", precise] } });
  assert.deepEqual(created.data?.thresholds, ["1", precise]);
});

test("values by property keep their types, also of a property with the name of a decimal", async () => {
  const dimensions = { by: ["value"], prices: [{ match: { value: ["7"] }, overage_rate: "1.5" }] };
  const usage = [{ by_dimension: [{ dimension: { value: "7" }, quantity: "2" }, { dimension: { value: 7 }, quantity: "5" }] }];
  const { data } = await client.POST("/v1/pricing/calculate", { body: { dimensions, usage } });
  assert.deepEqual([data?.charges[0]?.quantity, data?.charges[0]?.charge], ["7", "3"]);
});

test("a customer is found by an ID with special characters", async () => {
  const found = await client.GET("/v1/customers/{external_id}", { params: { path: { external_id: customer } } });
  assert.equal(found.data?.external_id, customer);
});

test("a filter by a property is sent as a query parameter", async () => {
  const query = { customer, meter: "calls", filter: { "filter.model": "large" } };
  const { error } = await client.GET("/v1/usage", { params: { query } });
  assert.equal(error?.errors[0]?.location, "query.filter.model");
});

test("a problem is typed", async () => {
  const { data, error, response } = await client.GET("/v1/customers/{external_id}", { params: { path: { external_id: "nobody" } } });
  assert.equal(data, undefined);
  assert.equal(response.status, 404);
  assert.equal(error?.code, "not_found");
  assert.equal(error?.status, 404);
});

test("a reservation keeps a customer within a quota", async () => {
  const limited = "limited";
  assert.equal((await client.POST("/v1/customers", { body: { external_id: limited } })).response.status, 201);
  const quota = { customer: limited, meter: "calls", limit: precise, mode: "hard", period: "month" } as const;
  assert.equal((await client.PUT("/v1/quotas", { body: quota })).response.status, 200);
  const quotas = new Quotas(client, { onError: "deny", maxStaleness: HOUR, timeout: HOUR, settleTimeout: HOUR });
  const amounts = [{ meter: "calls", amount: precise }];
  await quotas.reserve({ customer: limited, amounts }, async (reservation) => {
    await assert.rejects(quotas.reserve({ customer: limited, amounts: [{ meter: "calls", amount: "1" }] }, async () => {}), QuotaExceededError);
    reservation.record({ event_type: "call", value: "123456789012345678" });
  });
  const check = async (amount: string) => (await quotas.check({ customer: limited, meter: "calls", amount })).remaining;
  assert.deepEqual([await check("0.1"), await check("0.02")], ["0.123456789012", "0.023456789012"]);
  const unlimited = await quotas.check({ customer, meter: "calls", amount: precise });
  assert.deepEqual([unlimited.allowed, unlimited.remaining], [true, null]);
});

test("messages are distinguished by their type", () => {
  const describe = (body: string) => {
    const message = parseExactly<Schema<"Message">>(body);
    switch (message.type) {
      case "sync.failed":
        return `${message.data.customer_external_id}: ${message.data.error}`;
      case "discrepancy.detected":
        return message.data.kind === "usage_discrepancy" ? message.data.day : `${message.data.meter_slug}: ${message.data.unexplained} units are unexplained`;
      default:
        return "";
    }
  };
  assert.equal(describe(`{"type":"sync.failed","data":{"customer_external_id":"acme","error":"the webhook answered 401"}}`), "acme: the webhook answered 401");
  assert.equal(describe(`{"type":"discrepancy.detected","data":{"kind":"usage_discrepancy","day":"2026-12-03"}}`), "2026-12-03");
  const disputed = `{"type":"discrepancy.detected","data":{"kind":"reconciliation_disputed","meter_slug":"calls","unexplained":${precise}}}`;
  assert.equal(describe(disputed), `calls: ${precise} units are unexplained`);
});
