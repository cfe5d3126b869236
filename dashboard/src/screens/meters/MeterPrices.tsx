import { useParams } from "@tanstack/react-router";
import { Allowed } from "../../states/Allowed";
import { Prices } from "./Prices";

/** Shows a meter's own price. The price applies if neither the customer nor its plan has a price for the meter. */
export function MeterPrices() {
  const { meter } = useParams({ from: "/frame/meters/$meter/prices" });
  return (
    <Allowed to="pricing:read">
      <Prices key={meter} of={{ meter }} />
    </Allowed>
  );
}
