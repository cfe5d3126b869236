import { Failure } from "../api/client";
import { Identifier } from "../values/Identifier";
import styles from "./acts.module.css";

/** Why nothing was done. What was typed stays. */
export function Refused({ error }: { error: Error | null }) {
  if (!error) return null;
  const detail = error instanceof Failure ? error.detail : "The dashboard has a fault here.";
  const requestID = error instanceof Failure && error.status >= 500 ? error.requestID : null;
  return (
    <div className={styles.refused} role="alert">
      <p>{detail.charAt(0).toUpperCase() + detail.slice(1)}</p>
      {error instanceof Failure && error.fields.length > 0 && (
        <ul>
          {error.fields.map(({ location, message }) => (
            <li key={location + message}>
              <span className="mono">{location.replace(/^body\./, "")}</span> {message}
            </li>
          ))}
        </ul>
      )}
      {requestID && (
        <p className="muted small">
          Request <Identifier>{requestID}</Identifier>
        </p>
      )}
    </div>
  );
}
