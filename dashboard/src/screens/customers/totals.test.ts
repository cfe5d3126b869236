import { expect, test } from "vitest";
import { totals } from "./totals";

const excluded = { reason: "no_target", message: "Stripe has no price for it", next_step: "Sync the customer again." } as const;
const line = (amount: string, currency: string, more: { excluded?: typeof excluded } = {}) => ({ amount, currency, ...more });

test("the total of a bill excludes lines that are not reported", () => {
  expect(totals([line("1.50", "USD"), line("40", "USD", { excluded }), line("0.25", "USD"), line("7", "JPY")])).toEqual([
    { currency: "USD", amount: "1.75" },
    { currency: "JPY", amount: "7" },
  ]);
});

test("a bill without reported lines has no total", () => {
  expect(totals([line("40", "USD", { excluded })])).toEqual([]);
});
