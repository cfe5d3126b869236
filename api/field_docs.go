package api

import (
	"cmp"
	"strings"

	"github.com/danielgtaylor/huma/v2"
)

// fieldDocs describes fields by name, or by schema and name, if their tag does not.
var fieldDocs = map[string]string{
	"action":               "The action, such as api_key.create",
	"aggregation":          "sum adds the events' values; count counts the events",
	"at":                   "When it happened",
	"attempts":             "How often the report was sent",
	"cause":                "Why it needs attention",
	"caveat":               "The limits of these figures, in words",
	"client_id":            "The client's id at the issuer",
	"code":                 "The rule, for programs",
	"component":            "Whether the line is usage of the period or an adjustment",
	"connection_id":        "The id of the connection to the provider",
	"count":                "The number of items",
	"created_at":           "When it was created",
	"currency":             "ISO 4217 code",
	"current":              "The present password",
	"customer_external_id": "The customer's external ID",
	"customer_id":          "The customer's id",
	"customers":            "The number of customers",
	"data":                 "The items of this page",
	"deleted":              "Always true",
	"description":          "A text of your own",
	"effective_from":       "When the assignment starts",
	"email":                "The person's e-mail",
	"enabled":              "Whether it is on",
	"end":                  "The first instant that is not included",
	"ended":                "Always true",
	"errors":               "The rejected events and the rules that they break",
	"event_count":          "The number of events",
	"event_type":           "The event type",
	"event_types":          "The types of messages that it receives",
	"events":               "The events",
	"expires_at":           "When it becomes invalid",
	"external_id":          "The customer's external ID",
	"finished_at":          "When it ended; null: it is not over",
	"first_sent_at":        "When it was first sent; null: it was never sent",
	"found_at":             "When the audit found it",
	"grace_hours":          "How long after its end a billing period still takes usage",
	"granularity":          "The width of the windows",
	"group_by":             "The event properties to group usage by",
	"has_client_secret":    "Whether a client secret is saved",
	"has_more":             "Whether another page follows",
	"id":                   "The id of this object",
	"idempotency_key":      "The event's key; null: it has none",
	"issuer":               "The issuer's URL",
	"kind":                 "The kind of item",
	"last_four":            "The last four characters of the secret",
	"last_used_at":         "When it was last used; null: never",
	"late_policy":          "adjust bills late usage as an adjustment; report only shows it",
	"lines":                "One line for each meter",
	"looked_at":            "When the draft was last compared; null: never",
	"message":              "The broken rule, in words",
	"metadata":             "Data of your own",
	"meter_id":             "The meter's id",
	"meter_slug":           "The meter's slug",
	"meters":               "One line for each meter",
	"method":               "The provider's way of reporting it",
	"name":                 "The name",
	"next_attempt_at":      "When the next attempt is made; null: none is planned",
	"next_page_token":      "The page_token of the next page; null on the last one",
	"next_runs":            "When it runs next",
	"password":             "The person's password",
	"paused":               "Whether the schedule is paused",
	"plan":                 "The plan's slug; null: no plan",
	"prefix":               "The first characters of the key, which name its scope",
	"properties":           "The event's properties",
	"provider_customer":    "The customer at the provider",
	"reason":               "The reason, in words",
	"reasons":              "What differs",
	"received":             "Always true",
	"removed":              "Always true",
	"report_id":            "The report's id",
	"requested_at":         "When it was requested",
	"revoked":              "Always true",
	"revoked_at":           "When it was revoked; null: it was not",
	"role":                 "The role in the tenant",
	"scope":                "The scope, which decides its permissions",
	"secret_last_four":     "The last four characters of the secret",
	"settled_at":           "When it was delivered or given up; null: neither yet",
	"slug":                 "The slug, which names it in paths",
	"start":                "The first instant that is included",
	"started_at":           "When it began; null: it has not",
	"state":                "The state",
	"status":               "The state",
	"target":               "What adds it up at the provider",
	"tenant_id":            "The tenant's id",
	"timestamp":            "When the event happened",
	"timezone":             "The IANA name of the time zone",
	"token_last_four":      "The last four characters of the token",
	"took_ms":              "How long the attempt took, in milliseconds",
	"total_count":          "The number of events in the totals",
	"trigger":              "What requested the sync",
	"type":                 "The type",
	"url":                  "Where messages are sent",
	"version":              "The number of the version, from 1",
	"webhook_id":           "The webhook's id",
	"window_end":           "The end of the window, not included",
	"window_start":         "The start of the window",
	"workflow_id":          "The id of the run's workflow",

	"EventRejections.count": "The number of events",
	"StatementReport.kind":  "The kind of report",
	"StepSeries.kind":       "The kind of reports",
	"Step.name":             "The name of the step",

	"APIKeyMetadata.expires_at":             "When it becomes invalid; null: never",
	"AutoSyncRun.started_at":                "When it began",
	"CreatedAPIKey.expires_at":              "When it becomes invalid; null: never",
	"CreatedHMACSecret.expires_at":          "When it becomes invalid; null: never",
	"HMACSecret.expires_at":                 "When it becomes invalid; null: never",
	"UsageDiscrepancy.customer_external_id": "The customer's external ID; null: the sum of all customers",
}

// pathNouns name the resource whose id or slug follows a segment of a path.
var pathNouns = map[string]string{
	"api-keys": "API key", "conflicts": "conflict", "hmac-secrets": "HMAC secret", "holds": "invoice hold", "invitations": "invitation",
	"members": "member", "meters": "meter", "oidc": "tenant", "plans": "plan", "reports": "report", "sessions": "session", "syncs": "sync",
	"webhooks": "webhook",
}

// paramDocs describes parameters by name if neither their tag nor their path does.
var paramDocs = map[string]string{
	"actor":       "Only entries of this actor",
	"code":        "The issuer's code",
	"error":       "The issuer's error",
	"event_type":  "Only events of this type",
	"external_id": "The customer's external ID",
	"format":      "The format of the answer",
	"kind":        "Only items of this kind",
	"request_id":  "Only entries of this request",
	"state":       "Only items in this state",
	"status":      "Only items in this state",
	"tenant_id":   "The tenant's id",
	"type":        "The type of the provider",
	"version":     "The number of the version",
}

// describeFields describes the fields and parameters that have no description yet.
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
					p.Description = cmp.Or(pathDoc(path, p), paramDocs[p.Name])
				}
			}
		}
	}
}

// pathDoc describes the id or slug of a resource by the segment before it.
func pathDoc(path string, p *huma.Param) string {
	before, _, found := strings.Cut(path, "/{"+p.Name+"}")
	noun := pathNouns[before[strings.LastIndexByte(before, '/')+1:]]
	if !found || noun == "" {
		return ""
	}
	name, isOfOther := strings.CutSuffix(p.Name, "_id")
	if isOfOther {
		name = "id"
	}
	return "The " + name + " of the " + noun
}
