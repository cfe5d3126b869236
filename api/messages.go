package api

import (
	"reflect"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// messages describes what is sent to tenants: to their webhooks, and to the
// receiver of statements that a billing provider can be.
func (s *server) messages() {
	document := s.api.OpenAPI()
	document.Webhooks = map[string]*huma.PathItem{}
	sent[db.CustomerSynced](document, metering.BillingSynced, "All of a customer's usage is reported", toWebhooks)
	sent[db.CustomerNotSynced](document, metering.BillingSyncFailed, "Somebody has to act before a customer can be synced", toWebhooks)
	sent[db.PeriodClosed](document, metering.PeriodClosed, "A billing period's totals are final", toWebhooks)
	sent[db.ReconciliationDisputed](document, metering.BillingDiscrepancy, "Invoices of a provider differ from what was reported",
		toWebhooks+"\n\nEither final invoices bill something of a closed period that nobody has reported, once for each time that they say something else; "+
			"or, with `hold_id`, a held invoice disagrees, once for each time that it begins to.")
	sent[db.InvoiceDisagrees](document, metering.BillingDiscrepancy, "", "")
	sent[db.UsageDisagrees](document, metering.UsageDiscrepancy, "The daily audit found totals and events to disagree", toWebhooks+"\n\nOnce for each `day`.")
	sent[db.MemberInvited](document, metering.MemberInvited, "An invitation waits to be sent to somebody", toWebhooks)
	sent[db.MemberResetAsked](document, metering.MemberResetAsked, "Somebody asks for another password for a member",
		toWebhooks+"\n\nWho asks may be anybody. At most every ten minutes.")
	sent[db.WebhookTested](document, metering.WebhookTest, "Somebody tests a webhook", "`POST /v1/webhooks/{id}/test` asked for it.")
	sent[webhook.Statement](document, webhook.UsageStatement, "The bill of one billing period so far",
		"To the receiver of statements, where the billing provider is a webhook. Of a customer's statements of one stream and period keep the one with the "+
			"highest `sequence`: it replaces those before. A 2xx says that you have it.")
	sent[webhook.Tried](document, webhook.Ping, "A receiver of statements is tried before it is saved", "Answer with 2xx.")
	statements := []metering.MessageKind{webhook.UsageStatement, webhook.Ping}
	document.Paths["/v1/billing/provider"].Put.Callbacks = callback(document, "receive-statement", statements)
	document.Paths["/v1/webhooks"].Post.Callbacks = callback(document, "receive-message", append(metering.MessageKind("").Values(), metering.WebhookTest))
}

// callback describes messages of these kinds where the operation is that names
// their URL. OpenAPI 3.0 has no other place for them, and some generators make
// only the types that an operation refers to.
func callback(document *huma.OpenAPI, id string, kinds []metering.MessageKind) map[string]map[string]*huma.PathItem {
	one := *document.Webhooks[string(kinds[0])].Post
	one.OperationID, one.Summary, one.Description = id, "Receive a message", "Its type says which of these it is."
	anyOf := &huma.Schema{}
	for _, kind := range kinds {
		anyOf.AnyOf = append(anyOf.AnyOf, alternatives(document.Webhooks[string(kind)].Post.RequestBody.Content["application/json"].Schema)...)
	}
	one.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: anyOf}}}
	return map[string]map[string]*huma.PathItem{"message": {"{$request.body#/url}": {Post: &one}}}
}

const toWebhooks = "To the webhooks that have chosen this event type."

// sent adds a message to the document. Where several messages are of one kind,
// the first one describes it.
func sent[Data any](document *huma.OpenAPI, kind metering.MessageKind, summary, description string) {
	schemas := document.Components.Schemas
	reference := schemas.Schema(reflect.TypeFor[metering.MessageOf[Data]](), true, "")
	message := schemas.SchemaFromRef(reference.Ref)
	message.Properties["type"] = &huma.Schema{Type: huma.TypeString, Enum: []any{kind}}
	if first := document.Webhooks[string(kind)]; first != nil {
		body := first.Post.RequestBody.Content["application/json"]
		body.Schema = &huma.Schema{AnyOf: append(alternatives(body.Schema), reference)}
		return
	}
	document.Webhooks[string(kind)] = &huma.PathItem{Post: &huma.Operation{
		OperationID: string(kind), Security: noCredential, Summary: summary, Description: description, Tags: []string{"messages"},
		Parameters: []*huma.Param{
			signedHeader("webhook-id", "The same at every attempt: ignore an id that you have seen"),
			signedHeader("webhook-timestamp", "When this attempt was made, in Unix seconds"),
			signedHeader("webhook-signature", "By the secret, over id, timestamp and body, as Standard Webhooks says; two while one secret replaces another"),
		},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: reference}}},
		Responses: map[string]*huma.Response{
			"2XX":     {Description: "You have it"},
			"410":     {Description: "It is gone for good: nothing is sent here until somebody enables or saves it again"},
			"default": {Description: "It is tried again, where that can help"},
		},
	}}
}

func signedHeader(name, description string) *huma.Param {
	return &huma.Param{Name: name, In: "header", Required: true, Description: description, Schema: &huma.Schema{Type: huma.TypeString}}
}
