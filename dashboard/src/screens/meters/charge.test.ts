import { expect, test } from "vitest";
import { grouped } from "../../values/decimal";
import { arithmetic } from "../customers/arithmetic";
import { charge } from "./charge";

const price = { base: "25", included: "1000", rate: "0.02", currency: "USD" };
const total = (steps: ReturnType<typeof charge>) => steps.find(({ name }) => name === "charge")?.amount;

test("a charge by hand", () => {
  expect(total(charge(price, "1250"))).toBe("30");
  expect(total(charge(price, "999.5"))).toBe("25");
  expect(total(charge({ ...price, rate: "0.0005" }, "1045"))).toBe("25.02");
  expect(total(charge({ ...price, currency: "JPY", rate: "0.5" }, "1001"))).toBe("26");
  expect(arithmetic(charge(price, "1250"))).toEqual(["1,250 used", "1,000 included, 250 overage", "250 × 0.02 = 5.00", "+ base 25.00 = 30.00"]);
});

/** Numbers that are the same in each run. */
function* numbers(seed: bigint): Generator<bigint, never> {
  for (let state = seed; ; ) {
    state = (state * 6364136223846793005n + 1442695040888963407n) & 0xffffffffffffffffn;
    yield state >> 20n;
  }
}

// Independent of the decimals that the dashboard works with: whole numbers of 10^-6 units
// and of 10^-12 of the currency, and cents by what is left of a division.
test("charges are those of whole-number arithmetic", () => {
  const random = numbers(11n);
  const next = (below: bigint) => random.next().value % below;
  const millionths = (value: bigint) => `${value / 1_000_000n}.${String(value % 1_000_000n).padStart(6, "0")}`;
  for (let round = 0; round < 5_000; round++) {
    const [usage, included, rate, base] = [next(10n ** 13n), next(10n ** 13n), next(10n ** 7n), next(10n ** 10n)];
    const exact = (usage > included ? usage - included : 0n) * rate + base * 1_000_000n; // of 10^-12
    const [cents, rest] = [exact / 10n ** 10n, exact % 10n ** 10n];
    const up = rest > 5n * 10n ** 9n || (rest === 5n * 10n ** 9n && cents % 2n === 1n);
    const expected = up ? cents + 1n : cents;
    const steps = charge({ base: millionths(base), included: millionths(included), rate: millionths(rate), currency: "USD" }, millionths(usage));
    expect(grouped(total(steps) ?? "", 2).replaceAll(/[,.]/g, "").replace(/^0+(?=.)/, "")).toBe(String(expected));
  }
});
