import { Link, useParams } from "@tanstack/react-router";
import { Head } from "../../frame/Head";
import { Prices } from "../meters/Prices";

/** Shows the prices of a meter in a plan. */
export function PlanPrice() {
  const { plan, meter } = useParams({ from: "/frame/meters/-/plans/$plan/prices/$meter" });
  return (
    <>
      <Head part title={meter}>
        <Link to="/meters/-/plans/$plan/prices" params={{ plan }}>
          All prices of the plan
        </Link>
      </Head>
      <Prices key={`${plan} ${meter}`} of={{ plan, meter }} />
    </>
  );
}
