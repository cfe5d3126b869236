import type { Schema } from "../../api/client";

const sources = { customer: "the customer's own price", plan: "the price of the customer's plan", meter: undefined };

/** Shows the source of a line's price if it is the customer's own price or the price of the customer's plan. */
export function PriceSource({ of: { price_source: source } }: { of: Pick<Schema<"PreviewItem">, "price_source"> }) {
  const text = source && sources[source];
  return text ? <p className="muted small">{text}</p> : null;
}
