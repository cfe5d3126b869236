import { useSession } from "../api/session";
import { written } from "./instants";

/** An instant in the tenant's timezone, and in UTC for who points at it. */
export function Instant({ at, as = "minute" }: { at: string; as?: "date" | "day" | "minute" }) {
  const { tenant } = useSession();
  return (
    <time className="number" dateTime={at} title={at}>
      {written(at, tenant.timezone, as)}
    </time>
  );
}
