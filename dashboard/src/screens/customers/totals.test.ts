import { expect, test } from "vitest";
import { totals } from "./totals";

const line = (amount: string, currency: string, excluded?: string) => ({ amount, currency, ...(excluded !== undefined && { excluded }) });

test("the total of a bill leaves out what is not reported", () => {
  expect(totals([line("1.50", "USD"), line("40", "USD", "Stripe has no price for it"), line("0.25", "USD"), line("7", "JPY")])).toEqual([
    { currency: "USD", amount: "1.75" },
    { currency: "JPY", amount: "7" },
  ]);
});

test("where nothing is reported there is no total", () => {
  expect(totals([line("40", "USD", "Stripe has no price for it")])).toEqual([]);
});
