import { useSession } from "../api/session";
import { written } from "./instants";

/** Shows an instant in the tenant's timezone, and in UTC in the tooltip. */
export function Instant({ at, as = "minute" }: { at: string; as?: "date" | "day" | "minute" }) {
  const { tenant } = useSession();
  return (
    <time className="number" dateTime={at} title={at}>
      {written(at, tenant.timezone, as)}
    </time>
  );
}
