// The rules that events break, by the codes that requests are answered with.
const reasons: Record<string, string> = {
  invalid_event: "The event is not an object, or the name of a field is not UTF-8.",
  duplicate_name: "It had a field twice.",
  invalid_event_type: "event_type is missing, too long, or no text.",
  invalid_customer_id: "customer_id is missing, too long, or no text; or it is an erased customer's.",
  invalid_idempotency_key: "idempotency_key is empty, too long, or no text.",
  invalid_timestamp: "timestamp is not RFC 3339 with seconds and an offset.",
  invalid_value: "value is no number in the range that events have.",
  invalid_properties: "properties are no object that can be stored: with a name twice, a lone surrogate, or too deep.",
  properties_too_large: "properties have more than 16 KiB.",
  timestamp_too_old: "timestamp is more than five years back, or further than keys are known for.",
  timestamp_in_future: "timestamp is more than one hour ahead.",
  idempotency_conflict: "idempotency_key was used for another customer or with other content, and the tenant rejects that.",
  unknown_field: "It has a field that no event has, and the tenant is strict.",
  unknown_event_type: "No meter counts the event type, and the tenant is strict.",
  unknown_customer_id: "There is no such customer, and the tenant is strict.",
};

/** What a code means, in words; "" where the dashboard does not know it. */
export const reason = (code: string): string => reasons[code] ?? "";
