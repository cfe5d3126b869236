import createFetchClient, { type Client, type ClientOptions, type Middleware } from "openapi-fetch";
import { isLosslessNumber, LosslessNumber, parse, stringify } from "lossless-json";
import { decimals, freeForm, type components, type paths } from "./schema.gen.js";

export type { components, operations, paths } from "./schema.gen.js";

/** A body of the API, such as Schema<"UsageResult">. */
export type Schema<Name extends keyof components["schemas"]> = components["schemas"][Name];

export interface Options extends Omit<ClientOptions, "bodySerializer"> {
  baseUrl: string;
  /** Sent with every request; without it, authenticate by a middleware or headers. */
  apiKey?: string;
}

/**
 * A typed client of the API. Amounts and quantities are strings that hold every
 * digit, in bodies and in answers: on the wire they are JSON numbers, which
 * JavaScript would round. Answers that are read as a stream or as text, such as
 * a large export, pass unchanged.
 */
export function createClient({ apiKey, ...options }: Options): Client<paths> {
  const client = createFetchClient<paths>({ ...options, bodySerializer: serialize });
  client.use(exactAnswers);
  if (apiKey !== undefined) {
    client.use({
      onRequest({ request }) {
        request.headers.set("Authorization", `Bearer ${apiKey}`);
      },
    });
  }
  return client;
}

function serialize(body: unknown): string {
  const asNumber = (value: unknown) => (typeof value === "string" ? new LosslessNumber(value) : value);
  return stringify(eachDecimal(body, asNumber)) ?? "";
}

/** Puts decimals into quotes before the answer is parsed. */
const exactAnswers: Middleware = {
  async onResponse({ response, options }) {
    const json = /\bjson\b/.test(response.headers.get("Content-Type") ?? "");
    if (!json || !response.body || (response.ok && options.parseAs !== "json")) return undefined;
    const asText = (value: unknown) => (isLosslessNumber(value) ? value.toString() : value);
    const exact = stringify(eachDecimal(parse(await response.text()), asText));
    const headers = new Headers(response.headers);
    headers.delete("Content-Length");
    headers.delete("Content-Encoding");
    return new Response(exact ?? null, { status: response.status, statusText: response.statusText, headers });
  },
};

/** A copy of the tree with every decimal changed. */
function eachDecimal(tree: unknown, change: (value: unknown) => unknown, name = ""): unknown {
  if (Array.isArray(tree)) return tree.map((item) => eachDecimal(item, change, name));
  if (typeof tree !== "object" || tree === null || Object.getPrototypeOf(tree) !== Object.prototype) {
    return decimals.has(name) ? change(tree) : tree;
  }
  const fields = Object.entries(tree).map(([field, value]) => [field, freeForm.has(field) ? value : eachDecimal(value, change, field)]);
  return Object.fromEntries(fields);
}
