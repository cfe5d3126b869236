import { grouped, minorDigits } from "./decimal";

/** A number as the API has sent it, with its unit in muted. */
export function Quantity({ value, unit }: { value: string; unit?: string }) {
  return (
    <span className="number">
      {grouped(value)}
      {unit && " "}
      {unit && <span className="muted unit">{unit}</span>}
    </span>
  );
}

/** An amount of money, never without its currency. */
export function Amount({ value, currency }: { value: string; currency: string }) {
  return (
    <span className="number">
      {grouped(value, minorDigits(currency))}
      <span className="muted"> {currency}</span>
    </span>
  );
}
