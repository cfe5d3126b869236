package api

import (
	"cmp"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

const nextStepDoc = "Action for an operator, in words. Begins with 'Nothing:' if no action is ever necessary, and with 'Wait:' if usually none is"

// fieldDocs contains the descriptions of fields without a description in the struct tag. The key is the field
// name, or the schema and the field name joined by a dot, which takes precedence.
var fieldDocs = map[string]string{
	"action":               "The action, such as api_key.create",
	"aggregation":          "'sum' adds the values of the events. 'count' adds 1 for each event",
	"at":                   "Time of the action",
	"attempts":             "Number of times the report was sent",
	"cause":                "Reason why the item needs attention",
	"caveat":               "Reasons why these figures can differ from invoices",
	"client_id":            "The client's id at the issuer",
	"code":                 "Code of the broken rule, for programs",
	"component":            "Whether the line is usage of the period or an adjustment",
	"connection_id":        "The id of the connection to the provider",
	"count":                "The number of items",
	"created_at":           "Time of creation",
	"currency":             "ISO 4217 code",
	"current":              "The current password",
	"customer_external_id": "The customer's external ID",
	"customer_id":          "The customer's id",
	"customers":            "The number of customers",
	"data":                 "The items of this page",
	"deleted":              "Always true",
	"description":          "Description for people. Odometer does not use it",
	"effective_from":       "Start of the assignment",
	"email":                "The person's e-mail",
	"enabled":              "Whether this is enabled",
	"end":                  "The first instant that is not included",
	"ended":                "Always true",
	"errors":               "The rejected events and the rules that they break",
	"event_count":          "The number of events",
	"event_type":           "The event type",
	"event_types":          "The types of messages that the webhook receives",
	"events":               "The events",
	"expires_at":           "Time of expiry",
	"external_id":          "The customer's external ID",
	"finished_at":          "End time; null if not finished",
	"first_sent_at":        "Time of the first attempt that the provider may have received; null if there is none",
	"found_at":             "Time at which the audit found the difference",
	"grace_hours":          "Hours from the end of a billing period to its closing",
	"granularity":          "The width of the windows",
	"group_by":             "The event properties to group usage by",
	"has_client_secret":    "Whether a client secret is saved",
	"has_more":             "Whether another page follows",
	"id":                   "The id of this object",
	"idempotency_key":      "The event's key; null if it has none",
	"issuer":               "The issuer's URL",
	"kind":                 "The kind of item",
	"last_four":            "The last four characters of the secret",
	"last_used_at":         "Time of the last use; null if never used",
	"late_policy":          "'adjust' bills late usage as an adjustment. 'report' shows late usage and does not bill it",
	"lines":                "One line for each meter",
	"looked_at":            "Time of the last comparison of the draft; null if never compared",
	"message":              "The reason, in words",
	"metadata":             "Data of your own",
	"meter_id":             "The meter's id",
	"meter_slug":           "The meter's slug",
	"meters":               "One line for each meter",
	"method":               "The method of reporting to the provider",
	"mode":                 "Effect of the limit: 'hard' or 'soft'",
	"name":                 "The name",
	"next_attempt_at":      "Time of the next attempt; null if none is planned",
	"next_page_token":      "The page_token of the next page; null on the last page",
	"next_runs":            "Times of the next runs",
	"next_step":            nextStepDoc,
	"occurred_at":          "Time at which Odometer found that the threshold is reached",
	"password":             "The person's password",
	"paused":               "Whether the schedule is paused",
	"plan":                 "The plan's slug; null: no plan",
	"prefix":               "The first characters of the key, which name its scope",
	"properties":           "The event's properties",
	"provider_customer":    "The customer at the provider",
	"quota_id":             "The id of the quota",
	"reason":               "The reason, in words",
	"reasons":              "The differences",
	"received":             "Always true",
	"released":             "Always true",
	"removed":              "Always true",
	"report_id":            "The report's id",
	"requested_at":         "Time of the request",
	"reservation_id":       "The id of the reservation",
	"revoked":              "Always true",
	"revoked_at":           "Time of revocation; null if not revoked",
	"role":                 "The role in the tenant",
	"scope":                "The scope, which decides the permissions",
	"secret_last_four":     "The last four characters of the secret",
	"settled_at":           "Time at which the message was delivered or abandoned; null if still pending",
	"slug":                 "The slug, which is the name in paths",
	"start":                "The first instant that is included",
	"started_at":           "Start time; null if not started",
	"state":                "The state",
	"status":               "The state",
	"target":               "The object at the provider that adds up the usage",
	"tenant_id":            "The tenant's id",
	"timestamp":            "Time of the event",
	"timezone":             "The IANA name of the time zone",
	"token_last_four":      "The last four characters of the token",
	"took_ms":              "How long the attempt took, in milliseconds",
	"total_count":          "The number of events in the totals",
	"trigger":              "The source of the request",
	"type":                 "The type",
	"url":                  "Where messages are sent",
	"version":              "The number of the version, from 1",
	"webhook_id":           "The webhook's id",
	"window_end":           "The end of the window, not included",
	"window_start":         "The start of the window",
	"workflow_id":          "The id of the run's workflow",

	"FieldProblem.message":        "The broken rule, in words",
	"HoldReason.code":             "Code of the reason. 'message' and 'next_step' explain it",
	"IngestError.message":         "The broken rule, in words",
	"InvoiceDisagreement.code":    "Code of the reason. 'message' and 'next_step' explain it",
	"InvoiceDisagreement.message": "The reason, in words. Names the meter by its id",
	"Reconciliation.message":      "The reason, in words. Empty if 'reason' is absent",
	"Reconciliation.next_step":    nextStepDoc + ". Empty if 'reason' is absent or an operator has decided",
	"Unresolved.message":          "The reason, in words. Empty if 'reason' is absent",
	"Unresolved.next_step":        nextStepDoc + ". Empty if 'reason' is absent",
	"Attempt.at":                  "Time of the attempt",
	"StatementReport.lines":       "The usage and the adjustments of the report",
	"Price.version":               "The number of the version. All prices of a meter share one sequence",

	"EventRejections.count": "The number of events",
	"StatementReport.kind":  "The kind of report",
	"StepSeries.kind":       "The kind of reports",
	"Step.name": "Name of the step:\n" +
		"- Units: 'usage', late_usage, total_usage, reported_units, included_units, overage_units, charged_units.\n" +
		"- Charge of the price's model: overage_rate, overage_charge, unit_price, per_units, package_size, 'packages', package_price, 'percent', unit_charges, flat_fees, fixed_fee, fixed_fees, usage_charge.\n" +
		"- Prices by dimension: dimension_charge, default_charge, unrated_units.\n" +
		"- Charge of the period: base_price, minimum_charge, maximum_charge, exact_charge, provider_charge, 'trial', 'charge'.\n" +
		"- Deductions: unbilled_units, unbilled_charge, closed_units, closed_charge, only_reported_units, only_reported, elsewhere_units, billed_elsewhere.\n" +
		"- Results: 'quantity', 'amount', 'adjustment', amount_with_adjustments.\n" +
		"- Parts of another step: 'tier', tier_units, tier_unit_price, tier_flat_fee, matched_units, dimension_units, price_line, priced_units, price_rate, 'part'.",

	"APIKeyMetadata.expires_at":             "Time of expiry; null: no expiry",
	"AutoSyncRun.started_at":                "Start time",
	"CreatedAPIKey.expires_at":              "Time of expiry; null: no expiry",
	"CreatedHMACSecret.expires_at":          "Time of expiry; null: no expiry",
	"HMACSecret.expires_at":                 "Time of expiry; null: no expiry",
	"UsageDiscrepancy.customer_external_id": "The customer's external ID; null: the sum of all customers",
}

// pathNouns maps a path segment to the noun for its resource, if the noun is not the singular of the segment.
var pathNouns = map[string]string{
	"api-keys": "API key", "hmac-secrets": "HMAC secret", "holds": "invoice hold", "oidc": "tenant",
}

// paramDocs contains the descriptions of parameters without a description in the struct tag, by name. pathDoc
// describes the ids and slugs in paths that are not listed here.
var paramDocs = map[string]string{
	"actor":       "Only entries of this actor",
	"event_type":  "Only events of this type",
	"external_id": "The customer's external ID",
	"format":      "The format of the response",
	"kind":        "Only items of this kind",
	"request_id":  "Only entries of this request",
	"state":       "Only items in this state",
	"status":      "Only items in this state",
	"tenant_id":   "The tenant's id",
	"type":        "The type of the provider",
	"version":     "The number of the version",
}

// describeFields sets the description of each field and parameter that has none.
func (s *server) describeFields() {
	for name, schema := range s.api.OpenAPI().Components.Schemas.Map() {
		for field, property := range schema.Properties {
			if property.Ref == "" && property.Description == "" {
				property.Description = cmp.Or(fieldDocs[name+"."+field], fieldDocs[field])
			}
		}
	}
	for path, item := range s.api.OpenAPI().Paths {
		for _, op := range []*huma.Operation{item.Get, item.Post, item.Put, item.Patch, item.Delete} {
			if op == nil {
				continue
			}
			for _, p := range op.Parameters {
				if p.Description == "" {
					p.Description = cmp.Or(paramDocs[p.Name], pathDoc(path, p))
				}
			}
		}
	}
}

// pathDoc returns the description of an id or slug in a path. The preceding path segment provides the noun.
func pathDoc(path string, p *huma.Param) string {
	before, _, found := strings.Cut(path, "/{"+p.Name+"}")
	segment := before[strings.LastIndexByte(before, '/')+1:]
	singular, isPlural := strings.CutSuffix(segment, "s")
	noun, named := pathNouns[segment]
	if !found || !named && !isPlural {
		return ""
	}
	noun = cmp.Or(noun, singular)
	name, isOfOther := strings.CutSuffix(p.Name, "_id")
	if isOfOther {
		name = "id"
	}
	return "The " + name + " of the " + noun
}
