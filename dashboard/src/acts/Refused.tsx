import { Failure } from "../api/client";
import { errorText, fieldName } from "../api/words";
import { Identifier } from "../values/Identifier";
import styles from "./acts.module.css";

/** Shows the reason why an act failed. The typed text stays in the form. */
export function Refused({ error }: { error: Error | null }) {
  if (!error) return null;
  const failure = error instanceof Failure ? error : null;
  const requestID = failure && failure.status >= 500 ? failure.requestID : null;
  return (
    <div className={styles.refused} role="alert">
      <p>{errorText(error)}</p>
      {failure && failure.fields.length > 1 && (
        <ul>
          {failure.fields.map(({ location, message }) => (
            <li key={location + message}>
              {fieldName(location)} {message}
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
