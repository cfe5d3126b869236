import type { Terms } from "../../api/prices";
import { compare, excess, isAmount, shortest, sum } from "../../values/decimal";

const stepsOfGrid = 40;
const mostBounds = 25;

/** The smallest difference between two quantities. */
const least = "0.000000000001";

/** Returns the quantities at which a curve is drawn, in ascending order, up to slightly more than the largest one. */
export function samples(largest: string, bounds: string[]): string[] {
  const grid = gridTo(Number(largest) * 1.1);
  const end = grid.at(-1)!;
  const within = bounds.filter((bound) => excess(bound, "0") !== "0" && excess(end, bound) !== "0").slice(0, mostBounds);
  // The charge can jump just above a bound.
  return inOrder([...grid, ...within, ...within.map((bound) => sum([bound, least]))]);
}

/** Returns quantities in ascending order, without duplicates. */
export function inOrder(quantities: string[]): string[] {
  const sorted = quantities.toSorted(compare);
  return sorted.filter((quantity, index) => index === 0 || compare(sorted[index - 1]!, quantity) !== 0);
}

/** Returns multiples of a round number, from 0 to the first at or above end. Only the choice of number is inexact. */
function gridTo(end: number): string[] {
  const size = end > 0 && Number.isFinite(end) ? end / stepsOfGrid : 1;
  const exponent = Math.max(-12, Math.floor(Math.log10(size)));
  const digit = [1, 2, 5, 10].find((digit) => digit * 10 ** exponent >= size * 0.999999) ?? 10;
  const count = Math.max(1, Math.ceil(end / (digit * 10 ** exponent)));
  return Array.from({ length: Math.min(count, stepsOfGrid) + 1 }, (_, index) => shifted(index * digit, exponent));
}

/** Returns a whole number times a power of ten, in plain notation. */
function shifted(whole: number, exponent: number): string {
  if (exponent >= 0) return `${BigInt(whole) * 10n ** BigInt(exponent)}`;
  const digits = String(whole).padStart(1 - exponent, "0");
  return shortest(`${digits.slice(0, exponent)}.${digits.slice(exponent)}`);
}

/** Returns the quantities at which the slope of the charge can change, or the charge can jump. */
export function boundsOf({ included_units: included = "0", tiers = [], package_size: size = 0 }: Terms): string[] {
  const after = (quantity: string) => sum([included, quantity]);
  const packages = size > 0 ? Array.from({ length: mostBounds }, (_, index) => after(String(BigInt(size) * BigInt(index + 1)))) : [];
  return [included, ...tiers.flatMap(({ up_to }) => (up_to !== null && isAmount(up_to) ? [after(up_to)] : [])), ...packages];
}

/**
 * Returns the largest quantity of a chart: the highest usage of a customer or, if it is higher, the quantity that shows
 * the form of the price, but at most four times that usage.
 */
export function largestOf(terms: Terms, used: string[]): string {
  const most = used.toSorted(compare).at(-1) ?? "0";
  const form = formUpTo(terms);
  if (compare(most, "0") === 0) return form ?? String((terms.per_units ?? 1) * 1000);
  return form === undefined ? most : [most, form, sum([most, most, most, most])].toSorted(compare)[1]!;
}

/** Returns a quantity up to which a chart shows the price's tiers, some of its packages, or its included units. */
function formUpTo({ included_units: included = "0", tiers = [], package_size: size = 0 }: Terms): string | undefined {
  const bound = tiers.at(-2)?.up_to;
  if (bound) return sum([included, bound, bound]);
  if (size > 0) return sum([included, String(size * 5)]);
  return included === "0" ? undefined : sum([included, included]);
}
