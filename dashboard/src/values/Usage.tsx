import { useUnit } from "../api/meters";
import { LoadingText } from "../states/Loading";
import { Quantity } from "./Amount";

/** A quantity of a meter, with the meter's unit if it has one. It appears with its unit, so that nothing moves later. */
export function Usage({ meter, value, unitless = "" }: { meter: string; value: string; /** In place of a unit. */ unitless?: string }) {
  const unit = useUnit(meter);
  return unit === undefined ? <LoadingText /> : <Quantity value={value} unit={unit || unitless} />;
}
