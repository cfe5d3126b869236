// What dev/sdks/run compiles with the types that openapi-typescript generates.
import createClient from "openapi-fetch";
import type { components, paths } from "./schema.js";

const { ODOMETER_URL, ODOMETER_API_KEY, CUSTOMER: customer = "" } = process.env;
const client = createClient<paths>({ baseUrl: ODOMETER_URL, headers: { Authorization: `Bearer ${ODOMETER_API_KEY}` } });
const header = { "Odometer-Numbers": "string" } as const;

const event: components["schemas"]["Event"] = { event_type: "call", customer_id: customer }; // value has a default
const events = [335549.36, 0.01, 1000000.1].map((value) => ({ ...event, value }));
await client.POST("/v1/events/batch", { body: { events } });
const found = await client.GET("/v1/customers/{external_id}", { params: { path: { external_id: customer } } });
const total = await client.GET("/v1/usage/total", { params: { query: { customer }, header } });
const run = await client.POST("/v1/billing/sync", { params: { header }, body: { customer_external_id: customer } });
const text: string | undefined = total.data?.total;
console.log(found.data?.external_id, text, run.data?.lines[0]?.usage, run.data?.status);
