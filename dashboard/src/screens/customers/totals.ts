import type { Schema } from "../../api/client";
import { sum } from "../../values/decimal";

/** What the lines come to that are billed, in each currency: those that are not reported are not. */
export function totals(lines: Pick<Schema<"PreviewItem">, "amount" | "currency" | "excluded">[]): { currency: string; amount: string }[] {
  const billed = lines.filter(({ excluded }) => !excluded);
  const currencies = [...new Set(billed.map(({ currency }) => currency))];
  return currencies.map((currency) => ({ currency, amount: sum(billed.filter((line) => line.currency === currency).map(({ amount }) => amount)) }));
}
