import { useParams } from "@tanstack/react-router";
import { Allowed } from "../../states/Allowed";
import { Prices } from "./Prices";

/** A meter's own price, which holds for everybody whose plan says nothing else. */
export function MeterPrices() {
  const { meter } = useParams({ from: "/frame/meters/$meter/prices" });
  return (
    <Allowed to="pricing:read">
      <Prices key={meter} of={{ meter }} />
    </Allowed>
  );
}
