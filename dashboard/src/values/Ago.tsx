import { useForceUpdate, useInterval } from "@mantine/hooks";
import { useEffect } from "react";
import { useSession } from "../api/session";
import { fromNow, written } from "./instants";

/** Shows how long ago or in how long an instant is, and the exact instant in the tooltip. */
export function Ago({ at }: { at: string }) {
  const { tenant } = useSession();
  const clock = useInterval(useForceUpdate(), 15_000);
  useEffect(() => {
    clock.start();
    return clock.stop;
  }, []);
  return (
    <time className="number" dateTime={at} title={`${written(at, tenant.timezone, "second")} ${tenant.timezone} · ${at}`}>
      {fromNow(at, new Date())}
    </time>
  );
}
