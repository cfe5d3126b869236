import type { Schema } from "../../api/client";
import { sum } from "../../values/decimal";

/** Returns the total of the lines in each currency. Excluded lines are not reported, so they do not count. */
export function totals(lines: Pick<Schema<"PreviewItem">, "amount" | "currency" | "excluded">[]): { currency: string; amount: string }[] {
  const billed = lines.filter(({ excluded }) => !excluded);
  const currencies = [...new Set(billed.map(({ currency }) => currency))];
  return currencies.map((currency) => ({ currency, amount: sum(billed.filter((line) => line.currency === currency).map(({ amount }) => amount)) }));
}
