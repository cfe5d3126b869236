import type { Quota } from "../../api/quotas";
import { Usage } from "../../values/Usage";
import { periods } from "./words";

/** Shows the limit of a quota, such as 1,000 tokens each month, hard. */
export function Limit({ of: { meter, limit, period, mode } }: { of: Pick<Quota, "meter" | "limit" | "period" | "mode"> }) {
  return (
    <>
      {limit === null ? "unlimited" : <Usage meter={meter} value={limit} />}{" "}
      <span className="muted">
        {periods[period]}, {mode}
      </span>
    </>
  );
}
