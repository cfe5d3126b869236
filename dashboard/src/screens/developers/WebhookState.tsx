import type { Schema } from "../../api/client";
import { State } from "../../values/State";

const because = {
  tenant: "disabled",
  gone: "disabled: the receiver answered 410 Gone",
  failing: "disabled: no delivery succeeded for five days",
};

/** Shows whether a webhook is enabled, and whether its deliveries fail. */
export function WebhookState({ of: { enabled, disabled_because, failing_since } }: { of: Schema<"Webhook"> }) {
  if (!enabled) return <State is={disabled_because === "tenant" ? "off" : "bad"}>{because[disabled_because ?? "tenant"]}</State>;
  if (failing_since) return <State is="bad">failing</State>;
  return <State is="good">enabled</State>;
}
