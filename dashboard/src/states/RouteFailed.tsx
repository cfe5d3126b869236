import { useRouter, type ErrorComponentProps } from "@tanstack/react-router";
import { Failed } from "./Failed";

/** What a screen shows that could not be shown. */
export function RouteFailed({ error, reset }: ErrorComponentProps) {
  const router = useRouter();
  const retry = () => {
    reset();
    void router.invalidate();
  };
  return <Failed what="This screen" error={error instanceof Error ? error : new Error(String(error))} retry={retry} />;
}
