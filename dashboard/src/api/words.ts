import { Failure } from "./client";
import { priceName } from "./rules";

/** The dashboard's text for an error code, with the solution, if the API's own text is written for programs. */
const byCode: Record<string, string> = {
  internal: "The service has an internal error. Its operator can find the cause with the request ID.",
  meter_backfilling: "The meter's past events are still being counted. Try again in a moment.",
  no_provider: "No provider is connected. Connect one under Billing, Provider.",
  overloaded: "The service is busy, and nothing was changed. Try again in a moment.",
  paused: "The customer's syncs are paused. Resume them on the screen of the sync first.",
  rate_limited: "The rate limit of requests per minute is reached. Try again in a moment.",
  unavailable: "A part of the service does not respond. Try again in a moment.",
};

/** The dashboard's names of the API calls in texts of the API. */
const calls: Record<string, string> = {
  "PUT /v1/billing/auto-sync": "the switch above",
  "PUT /v1/billing/provider": "the form under Billing, Provider",
  "PUT /v1/customers/{external_id}/upsert": "the form under Details of the customer",
  "POST /v1/billing/reports/{id}/resolve": "the buttons of the report",
  "GET /v1/billing/attention": "the list of items that need attention",
  "GET /v1/billing/reconciliation": "the list of reconciliations",
  "POST /v1/billing/sync": "Sync now on the customer's bill",
  "GET /v1/billing/unrated": "the list of unrated usage",
  "GET /v1/billing/unrated/totals": "the list of unrated usage",
};

/** The labels of fields in forms, if a label differs from the name of the field. */
const fieldNames: Record<string, string> = {
  billing_provider_id: "ID at the provider",
  client_id: "Client ID",
  confirm: "The external ID",
  current: "Current password",
  deadline_hours: "Hold at most, in hours",
  effective_from: "From",
  end: "Until",
  external_id: "External ID",
  granularity: "Windows",
  grace_hours: "Grace, in hours",
  match: "Values",
  requests_per_minute: "Requests a minute",
  start: "From",
  url: "URL",
};

/** The beginning of a path into a price by dimension, as in body.dimensions.prices[0].overage_rate. */
const inDimensions = /^body\.dimensions\.(?:prices\[(\d+)\]|default)\.(?=.)/;

/** Returns a text with a capital first letter. */
export const capitalize = (text: string): string => text.charAt(0).toUpperCase() + text.slice(1);

/** Returns the form's label for a field of a request, such as "Grace, in hours" for body.grace_hours. */
export function fieldName(location: string): string {
  const [within, index] = inDimensions.exec(location) ?? [];
  if (within) return `${fieldName(location.slice(within.length))} of ${index === undefined ? "all other usage" : priceName(index)}`;
  const name = location.replace(/^(body|query|path|header)\b\.?/, "").replace(/\[\d+\]$/, "");
  const last = name.split(".").at(-1) ?? "";
  return capitalize((fieldNames[last] ?? last.replaceAll("_", " ")) || "The request");
}

/** Returns a sentence of the API with the dashboard's names of calls and fields. */
export function inWords(text: string): string {
  return text
    .replace(/\b(GET|PUT|POST|PATCH|DELETE) \/v1\/[^\s;,]*[^\s;,.]/g, (call) => calls[call] ?? call)
    .replace(/\bbody\.[a-z_.]+/g, fieldName)
    .replaceAll("external_id", "external ID")
    .replaceAll("billing_provider_id", "id at the provider");
}

/** Returns an error in words for the user of the dashboard. */
export function errorText(error: Error): string {
  if (!(error instanceof Failure)) return "The dashboard has an error on this screen.";
  const known = byCode[error.code];
  if (known !== undefined) return known;
  const [field] = error.fields;
  if (field?.location === "query.page_token") return "The page in the address belongs to another list. Start at the first page.";
  if (field && error.fields.length === 1) return `${fieldName(field.location)} ${field.message}`;
  if (field) return "The API refused several fields.";
  return capitalize(inWords(error.detail));
}
