import { Button, CopyButton } from "@mantine/core";
import styles from "./FirstEvent.module.css";

/** Shows a command that sends an event of a customer. Without an API key, the command reads it from $ODOMETER_KEY. */
export function FirstEvent({ customer, apiKey = "$ODOMETER_KEY" }: { customer: string; apiKey?: string | undefined }) {
  const event = JSON.stringify({ customer_id: customer, event_type: "api_request", value: 1, idempotency_key: "first" });
  const quoted = event.replaceAll("'", "'\\''");
  const line = `curl ${location.origin}/v1/events -H "Authorization: Bearer ${apiKey}" -H 'Content-Type: application/json' -d '${quoted}'`;
  return (
    <div className={styles.line}>
      <pre className="mono" tabIndex={0} role="group" aria-label="A command that sends an event">
        {line}
      </pre>
      <CopyButton value={line}>
        {({ copied, copy }) => (
          <Button variant="default" size="sm" onClick={copy}>
            {copied ? "Copied" : "Copy"}
          </Button>
        )}
      </CopyButton>
    </div>
  );
}
