import type { Schema } from "../api/client";
import { Amount } from "./Amount";

/** Returns a count of customers as text, such as 2 customers. */
export const customersOf = (count: number) => (count === 1 ? "1 customer" : `${count} customers`);

/** Lists the charges before and after a change, by currency. */
export function Changes({ changes }: { changes: Schema<"PriceImpact">[] }) {
  return (
    <ul>
      {changes.map(({ currency, before, after, customers }) => (
        <li key={currency}>
          <Amount value={before} currency={currency} /> → <Amount value={after} currency={currency} />
          <span className="muted">, {customersOf(customers)}</span>
        </li>
      ))}
    </ul>
  );
}
