// The rules that events can break, by the codes in the API's responses.
const reasons: Record<string, string> = {
  invalid_event: "The event is not an object, or a field name is not UTF-8.",
  duplicate_name: "The event has a field twice.",
  invalid_event_type: "event_type is missing, too long, or not a string.",
  invalid_customer_id: "customer_id is missing, too long, not a string, or that of an erased customer.",
  invalid_idempotency_key: "idempotency_key is empty, too long, or not a string.",
  invalid_timestamp: "timestamp is not RFC 3339 with seconds and an offset.",
  invalid_value: "value is not a number, or outside the allowed range.",
  invalid_properties: "properties is not an object, contains a name twice or an invalid character, or is nested too deeply.",
  properties_too_large: "properties is larger than 16 KiB.",
  timestamp_too_old: "timestamp is more than five years in the past, or older than the stored idempotency keys.",
  timestamp_in_future: "timestamp is more than one hour in the future.",
  idempotency_conflict: "idempotency_key was already used for another customer or other content, and the tenant rejects such events.",
  value_missing: "A meter counts a property that the event does not have, and the tenant is strict.",
  value_invalid: "A meter counts a property whose value is not a number within the allowed range, and the tenant is strict.",
  unknown_field: "The event has an unknown field, and the tenant is strict.",
  unknown_event_type: "No meter counts the event type, and the tenant is strict.",
  unknown_customer_id: "The customer does not exist, and the tenant is strict.",
};

/** Returns the rule of a code in words, or "" if the dashboard does not know the code. */
export const reason = (code: string): string => reasons[code] ?? "";
