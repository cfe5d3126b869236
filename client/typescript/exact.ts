import type { Middleware } from "openapi-fetch";
import { isLosslessNumber, LosslessNumber, parse, stringify } from "lossless-json";
import { decimals, freeForm } from "./schema.gen.js";

/** A body as JSON, in which decimals are numbers of as many digits. */
export function serialize(body: unknown): string {
  const asNumber = (value: unknown) => (typeof value === "string" ? new LosslessNumber(value) : value);
  return stringify(eachDecimal(body, asNumber)) ?? "";
}

/** Puts decimals into quotes before the answer is parsed. */
export const exactAnswers: Middleware = {
  async onResponse({ response, options }) {
    const json = /\bjson\b/.test(response.headers.get("Content-Type") ?? "");
    if (!json || !response.body || (response.ok && options.parseAs !== "json")) return undefined;
    const exact = stringify(eachDecimal(parse(await response.text()), asText));
    const headers = new Headers(response.headers);
    headers.delete("Content-Length");
    headers.delete("Content-Encoding");
    return new Response(exact ?? null, { status: response.status, statusText: response.statusText, headers });
  },
};

/**
 * Parses an answer that was read as text. Decimals are strings. Any other number
 * that JavaScript would write with other digits is a LosslessNumber, such as one
 * in the properties of an event.
 */
export const parseExactly = <Body>(text: string) => eachDecimal(parse(text, undefined, exactNumber), asText) as Body;

const exactNumber = (text: string) => (String(Number(text)) === text ? Number(text) : new LosslessNumber(text));
const asText = (value: unknown) => (typeof value === "number" || isLosslessNumber(value) ? value.toString() : value);

/**
 * Returns a copy of the tree with every decimal changed. A name can be that of a decimal in one type and that of a
 * free-form object in another, such as before. The value distinguishes them.
 */
function eachDecimal(tree: unknown, change: (value: unknown) => unknown, name = ""): unknown {
  if (Array.isArray(tree)) return tree.map((item) => eachDecimal(item, change, name));
  if (typeof tree !== "object" || tree === null || Object.getPrototypeOf(tree) !== Object.prototype) {
    return decimals.has(name) ? change(tree) : tree;
  }
  const fields = Object.entries(tree).map(([field, value]) => [field, freeForm.has(field) && isObject(value) ? value : eachDecimal(value, change, field)]);
  return Object.fromEntries(fields);
}

const isObject = (value: unknown) => typeof value === "object" && value !== null && !isLosslessNumber(value) && !Array.isArray(value);
