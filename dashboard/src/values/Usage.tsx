import { useUnit } from "../api/meters";
import { LoadingText } from "../states/Loading";
import { Quantity } from "./Amount";

/**
 * Shows a quantity of a meter, with the meter's unit if it has one. Both appear together, so that the layout does not
 * shift.
 */
export function Usage({ meter, value, unitless = "" }: { meter: string; value: string; /** The text in place of a unit. */ unitless?: string }) {
  const unit = useUnit(meter);
  return unit === undefined ? <LoadingText /> : <Quantity value={value} unit={unit || unitless} />;
}
