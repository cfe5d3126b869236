import { Button } from "@mantine/core";
import { Failure } from "../api/client";
import { errorText } from "../api/words";
import { Identifier } from "../values/Identifier";
import styles from "./states.module.css";

/** Shows the failed part, the reason, the request ID for the operator, and a button to retry. */
export function Failed({ what, error, retry }: { what: string; error: Error; retry: () => void }) {
  const requestID = error instanceof Failure ? error.requestID : null;
  return (
    <div className={styles.state} role="alert">
      <h2 className={styles.bad}>{what} could not be read</h2>
      <p>{errorText(error)}</p>
      {requestID && (
        <p className="muted small">
          Request <Identifier>{requestID}</Identifier>
        </p>
      )}
      <Button variant="default" size="sm" onClick={retry}>
        Retry
      </Button>
    </div>
  );
}
