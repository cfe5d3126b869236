const compact = new Intl.NumberFormat("en-GB", { notation: "compact", maximumSignificantDigits: 3 });

/** Returns a label of a number on an axis, short but distinct from its neighbours, such as 1.5k, 0.002 or 1e-9. */
export function tick(value: number): string {
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.001 || size >= 1e15)) return String(Number(value.toPrecision(3)).toExponential()).replace("e+", "e");
  return compact.format(value);
}
