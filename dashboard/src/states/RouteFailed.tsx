import { useRouter, type ErrorComponentProps } from "@tanstack/react-router";
import { Failed } from "./Failed";
import styles from "./states.module.css";

/** Shows the error of a screen that failed, and a button to retry. */
export function RouteFailed({ error, reset }: ErrorComponentProps) {
  const router = useRouter();
  const retry = () => {
    reset();
    void router.invalidate();
  };
  return (
    <main className={styles.alone}>
      <Failed what="This screen" error={error instanceof Error ? error : new Error(String(error))} retry={retry} />
    </main>
  );
}
