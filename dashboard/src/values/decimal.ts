// Amounts and quantities stay text from the API to the screen, because JavaScript's numbers would round them.

const form = /^(-?)(\d+)(?:\.(\d+))?$/;

/** Returns the sign and the digits before and after the point. */
function partsOf(decimal: string): { sign: string; whole: string; fraction: string } {
  const [, sign = "", whole, fraction = ""] = form.exec(decimal) ?? [];
  if (whole === undefined) throw new Error(`${decimal} is not a decimal in plain notation`);
  return { sign, whole, fraction };
}

/** Returns 1284402.75 as 1,284,402.75: every digit, and zeros up to the given number of decimals. */
export function grouped(decimal: string, decimals = 0): string {
  const { sign, whole, fraction } = partsOf(decimal);
  const digits = fraction.padEnd(decimals, "0");
  return sign.replace("-", "−") + whole.replace(/\B(?=(\d{3})+$)/g, ",") + (digits && `.${digits}`);
}

/** Returns the number of decimals, without zeros at the end. */
export function decimals(decimal: string): number {
  return partsOf(decimal).fraction.replace(/0+$/, "").length;
}

/** Returns the number of decimals of a currency's smallest unit. */
export function minorDigits(currency: string): number {
  return new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits ?? 2;
}

/** A decimal as a whole number of units of its last digit. */
interface Scaled {
  units: bigint;
  scale: number;
}

/** Returns the decimal as a whole number of units and the number of digits after the point. */
function scaled(decimal: string): Scaled {
  const { sign, whole, fraction } = partsOf(decimal);
  return { units: BigInt(sign + whole + fraction), scale: fraction.length };
}

/** Returns the units at a larger number of digits after the point. */
const atScale = ({ units, scale }: Scaled, wanted: number): bigint => units * 10n ** BigInt(wanted - scale);

/** Returns a decimal as text. */
function written({ units, scale }: Scaled): string {
  const digits = (units < 0n ? -units : units).toString().padStart(scale + 1, "0");
  const whole = digits.slice(0, digits.length - scale);
  return (units < 0n ? "-" : "") + whole + (scale > 0 ? `.${digits.slice(-scale)}` : "");
}

/** Returns the exact sum. */
export function sum(decimals: string[]): string {
  const parts = decimals.map(scaled);
  const scale = Math.max(0, ...parts.map((part) => part.scale));
  return written({ units: parts.reduce((all, part) => all + atScale(part, scale), 0n), scale });
}

/** Returns the exact difference. */
export function difference(decimal: string, subtracted: string): string {
  const [a, b] = [scaled(decimal), scaled(subtracted)];
  const scale = Math.max(a.scale, b.scale);
  return shortest(written({ units: atScale(a, scale) - atScale(b, scale), scale }));
}

/** Returns -1 if a is less than b, 0 if they are equal, and 1 if a is greater than b. */
export function compare(a: string, b: string): number {
  const less = difference(a, b);
  if (less === "0") return 0;
  return less.startsWith("-") ? -1 : 1;
}

/** Returns the exact difference, or 0 if it is negative. */
export function excess(decimal: string, over: string): string {
  const more = difference(decimal, over);
  return more.startsWith("-") ? "0" : more;
}

/** Returns a decimal without zeros at the end of its fraction. */
export function shortest(decimal: string): string {
  return decimal.includes(".") ? decimal.replace(/\.?0+$/, "") : decimal;
}

/** Reports whether the API accepts a text as an amount: a decimal in plain notation, 0 or more. */
export function isAmount(text: string): boolean {
  return /^(0|[1-9]\d*)(\.\d+)?$/.test(text);
}

/** Returns an error message if the API does not accept the text as an amount. An empty text is allowed. */
export function wrongAmount(text: string): string | undefined {
  if (text === "" || isAmount(text)) return undefined;
  if (/^[-−]\d/.test(text)) return "Must be 0 or more";
  return "Must be a number such as 1000.50, without thousands separators";
}

/** Returns an error message if the API does not accept the text as a whole number. */
export function wrongWhole(text: string): string | undefined {
  return /^\d{1,10}$/.test(text) ? undefined : "Must be a whole number such as 72";
}

/** Returns each value as a share of the largest one, from 0 to 1. Negative values are 0. For drawing, not for text. */
export function shares(decimals: string[]): number[] {
  const values = decimals.map(Number);
  const largest = Math.max(0, ...values);
  return values.map((value) => (largest > 0 ? Math.max(0, value) / largest : 0));
}
