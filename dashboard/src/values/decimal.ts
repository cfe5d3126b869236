// Amounts and quantities are text from the API to the screen: JavaScript's
// numbers would round them.

const form = /^(-?)(\d+)(?:\.(\d+))?$/;

function partsOf(decimal: string): { sign: string; whole: string; fraction: string } {
  const [, sign = "", whole, fraction = ""] = form.exec(decimal) ?? [];
  if (whole === undefined) throw new Error(`${decimal} is not a decimal in plain notation`);
  return { sign, whole, fraction };
}

/** 1284402.75 as 1,284,402.75: every digit, and zeros up to as many decimals. */
export function grouped(decimal: string, decimals = 0): string {
  const { sign, whole, fraction } = partsOf(decimal);
  const digits = fraction.padEnd(decimals, "0");
  return sign.replace("-", "−") + whole.replace(/\B(?=(\d{3})+$)/g, ",") + (digits && `.${digits}`);
}

/** How many decimals it has, those that are zero left out. */
export function decimals(decimal: string): number {
  return partsOf(decimal).fraction.replace(/0+$/, "").length;
}

/** How many decimals the smallest unit of a currency has. */
export function minorDigits(currency: string): number {
  return new Intl.NumberFormat("en", { style: "currency", currency }).resolvedOptions().maximumFractionDigits ?? 2;
}

/** The exact sum. */
export function sum(decimals: string[]): string {
  const parts = decimals.map(partsOf);
  const scale = Math.max(0, ...parts.map((part) => part.fraction.length));
  const total = parts.reduce((all, part) => all + BigInt(part.sign + part.whole + part.fraction.padEnd(scale, "0")), 0n);
  const digits = (total < 0n ? -total : total).toString().padStart(scale + 1, "0");
  const whole = digits.slice(0, digits.length - scale);
  return (total < 0n ? "-" : "") + whole + (scale > 0 ? `.${digits.slice(-scale)}` : "");
}

/** How far along a line from 0 to the largest of them each is, from 0 to 1: for drawing, never for showing. */
export function shares(decimals: string[]): number[] {
  const values = decimals.map(Number);
  const largest = Math.max(0, ...values);
  return values.map((value) => (largest > 0 ? Math.max(0, value) / largest : 0));
}
