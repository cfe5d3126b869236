import { expect, test } from "vitest";
import { Failure } from "./client";
import { errorText, fieldName, inWords } from "./words";

const failure = (code: string, detail: string, ...fields: [location: string, message: string][]) =>
  new Failure("Title", detail, 409, null, code, fields.map(([location, message]) => ({ location, message })));

test("an error names the dashboard's control, not the API call of a program", () => {
  expect(errorText(failure("paused", "an operator has paused the customer"))).toContain("Resume them on the screen of the sync");
  expect(errorText(failure("conflict", "Auto-Sync is off; turn it on with PUT /v1/billing/auto-sync"))).toBe("Auto-Sync is off; turn it on with the switch above");
  expect(errorText(failure("conflict", "the provider has not received all of the customer's usage; sync the customer first with POST /v1/billing/sync"))).toContain("first with Sync now on the customer's bill");
  expect(errorText(failure("conflict", "body.billing_provider_id is already assigned to another customer"))).toBe("ID at the provider is already assigned to another customer");
  expect(errorText(failure("conflict", "a customer with this external_id exists already"))).toBe("A customer with this external ID exists already");
});

test("a broken rule names the field as its form does, and only once", () => {
  expect(errorText(failure("invalid", "body.grace_hours must be at most 720", ["body.grace_hours", "must be at most 720"]))).toBe("Grace, in hours must be at most 720");
  expect(errorText(failure("invalid", "two rules", ["body.slug", "must be short"], ["body.name", "must be long"]))).toBe("The API refused several fields.");
  expect([fieldName("body.dimensions.prices[1].match.model[0]"), fieldName("body.dimensions.default.unit_price"), fieldName("body.dimensions.prices")]).toEqual(["Model of price 2", "Unit price of all other usage", "Prices"]);
  expect([fieldName("body.invoice_hold.deadline_hours"), fieldName("body.event_type"), fieldName("body")]).toEqual(["Hold at most, in hours", "Event type", "The request"]);
});

test("the reason for a failed sync uses the names of the dashboard", () => {
  expect(inWords("no billing provider is configured; save one with PUT /v1/billing/provider")).toBe("no billing provider is configured; save one with the form under Billing, Provider");
  expect(inWords("Stripe has no customer with the customer's billing_provider_id; correct billing_provider_id")).toContain("correct id at the provider");
  expect(inWords("Save a provider with PUT /v1/billing/provider.")).toBe("Save a provider with the form under Billing, Provider.");
  expect(inWords("Set the customer's billing_provider_id with PUT /v1/customers/{external_id}/upsert.")).toBe("Set the customer's id at the provider with the form under Details of the customer.");
});

test("an error of the dashboard itself is reported as such", () => {
  expect(errorText(new Error("undefined is no function"))).toBe("The dashboard has an error on this screen.");
});
