import { useUnit } from "../api/meters";
import { Quantity } from "./Amount";

/** A quantity of a meter, with the meter's unit if it has one. */
export function Usage({ meter, value, unitless = "" }: { meter: string; value: string; /** In place of a unit. */ unitless?: string }) {
  return <Quantity value={value} unit={useUnit(meter) || unitless} />;
}
