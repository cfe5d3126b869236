import { grouped, minorDigits } from "./decimal";

/** Shows every digit of a number from the API, and the number's unit in the muted colour. */
export function Quantity({ value, unit }: { value: string; unit?: string }) {
  return (
    <span className="number">
      {grouped(value)}
      {unit && " "}
      {unit && <span className="muted unit">{unit}</span>}
    </span>
  );
}

/** Shows an amount of money, always with its currency. */
export function Amount({ value, currency }: { value: string; currency: string }) {
  return (
    <span className="number">
      {grouped(value, minorDigits(currency))}
      <span className="muted"> {currency}</span>
    </span>
  );
}
