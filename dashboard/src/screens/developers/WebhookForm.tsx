import { Checkbox, TextInput } from "@mantine/core";
import { useState } from "react";
import { Form } from "../../acts/Form";
import type { Act } from "../../acts/useAct";
import { brokenRule, type Schema } from "../../api/client";
import { useSession } from "../../api/session";
import styles from "./Credentials.module.css";

type Body = Schema<"CreateWebhook">;

/** The event types that a webhook can receive, and the event that causes a message of each type. */
export const eventTypes: Record<Body["event_types"][number], string> = {
  "sync.succeeded": "A sync has succeeded",
  "sync.failed": "A sync has failed and needs attention",
  "sync.delayed": "A sync has been open for more than 15 minutes",
  "period.closed": "A period's totals are final",
  "invoice.held": "A held invoice differs from the reported usage and needs an operator",
  "discrepancy.detected": "Final invoices differ from the reported usage, or totals differ from events",
  "credential.expiring": "An API key or HMAC secret expires in 7 days",
  "webhook.disabled": "Another webhook was disabled because its receiver is gone or fails",
  "member.invited": "An invitation link is ready to be sent",
  "password_reset.requested": "A password reset was requested for a member, possibly by someone else",
  "alert.triggered": "A customer reached a threshold of an alert",
  "quota.exceeded": "The usage of a customer exceeded a quota",
};

/** The event types with messages that can contain charges. They require the permission billing:read. */
const ofCharges = ["alert.triggered", "invoice.held"];

interface Props {
  act: Act<Body>;
  submit: string;
  onSubmit: (body: Body) => void;
  leave: () => void;
  /** The saved webhook that the form edits. */
  webhook?: Schema<"Webhook">;
}

/** Shows the fields of a webhook that the user creates or edits. */
export function WebhookForm({ act, submit, onSubmit, leave, webhook }: Props) {
  const { permissions } = useSession();
  const hidden = permissions.includes("billing:read") ? [] : ofCharges;
  const [url, setURL] = useState(webhook?.url ?? "");
  const [description, setDescription] = useState(webhook?.description ?? "");
  const [types, setTypes] = useState<string[]>(webhook?.event_types ?? ["sync.failed"]);
  return (
    <Form act={act} needs="webhooks:write" submit={submit} leave={leave} onSubmit={() => onSubmit({ url, description, event_types: types as Body["event_types"] })}>
      <TextInput
        label="URL"
        type="url"
        placeholder="https://"
        required
        withAsterisk={false}
        value={url}
        error={brokenRule(act.error, "url")}
        onChange={(event) => setURL(event.currentTarget.value)}
        data-autofocus
      />
      <TextInput
        label="Description"
        maxLength={255}
        value={description}
        error={brokenRule(act.error, "description")}
        onChange={(event) => setDescription(event.currentTarget.value)}
      />
      <Checkbox.Group label="Messages" value={types} onChange={setTypes} error={brokenRule(act.error, "event_types")}>
        <div className={styles.choices}>
          {Object.entries(eventTypes).map(([type, when]) => (
            <Checkbox
              key={type}
              value={type}
              label={type}
              description={hidden.includes(type) ? `${when}. The permission billing:read is required` : when}
              disabled={hidden.includes(type)}
            />
          ))}
        </div>
      </Checkbox.Group>
    </Form>
  );
}
