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
	sent[db.CustomerSynced](document, metering.BillingSynced, "A sync of a customer succeeded", toWebhooks)
	sent[db.CustomerNotSynced](document, metering.BillingSyncFailed, "The sync of a customer needs an operator", toWebhooks)
	sent[db.PeriodClosed](document, metering.PeriodClosed, "The totals of a billing period are final", toWebhooks)
	sent[db.ReconciliationDisputed](document, metering.BillingDiscrepancy, "The provider's invoices differ from the reports",
		toWebhooks+"\n\n- Without `hold_id`: final invoices of a closed period differ from the reports. Sent again whenever the difference changes.\n"+
			"- With `hold_id`: a held invoice differs from the reports. Sent once for each time that a difference appears.")
	sent[db.InvoiceDisagrees](document, metering.BillingDiscrepancy, "", "")
	sent[db.UsageDisagrees](document, metering.UsageDiscrepancy, "The daily audit found a discrepancy between totals and events", toWebhooks+"\n\nSent once for each `day`.")
	sent[db.MemberInvited](document, metering.MemberInvited, "An invitation is ready to be sent", toWebhooks)
	sent[db.MemberResetAsked](document, metering.MemberResetAsked, "A password reset was requested for a member",
		toWebhooks+"\n\nThe request is not authenticated, so it may not come from the member. Sent at most every ten minutes.")
	sent[db.WebhookTested](document, metering.WebhookTest, "A webhook was tested", "Sent after `POST /v1/webhooks/{id}/test`.")
	sent[webhook.Statement](document, webhook.UsageStatement, "The current bill of a billing period",
		"Sent to the receiver of statements if the billing provider is a webhook. Respond with 2xx when it is stored.\n\n"+
			"A statement replaces earlier ones with the same customer, `stream` and period. Keep the one with the highest `sequence`.")
	sent[webhook.Tried](document, webhook.Ping, "The receiver of statements is tested before it is saved", "Respond with 2xx.")
	statements := []metering.MessageKind{webhook.UsageStatement, webhook.Ping}
	document.Paths["/v1/billing/provider"].Put.Callbacks = callback(document, "receive-statement", statements)
	document.Paths["/v1/webhooks"].Post.Callbacks = callback(document, "receive-message", append(metering.MessageKind("").Values(), metering.WebhookTest))
}

// callback describes messages of these kinds where the operation is that names
// their URL. OpenAPI 3.0 has no other place for them, and some generators make
// only the types that an operation refers to.
func callback(document *huma.OpenAPI, id string, kinds []metering.MessageKind) map[string]map[string]*huma.PathItem {
	one := *document.Webhooks[string(kinds[0])].Post
	one.OperationID, one.Summary, one.Description = id, "Receive a message", "`type` is the type of the message."
	anyOf := &huma.Schema{}
	for _, kind := range kinds {
		anyOf.AnyOf = append(anyOf.AnyOf, alternatives(document.Webhooks[string(kind)].Post.RequestBody.Content["application/json"].Schema)...)
	}
	one.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: anyOf}}}
	return map[string]map[string]*huma.PathItem{"message": {"{$request.body#/url}": {Post: &one}}}
}

const toWebhooks = "Sent to the webhooks that subscribe to this event type."

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
			signedHeader("webhook-id", "Id of the message, the same at every attempt. Ignore an id that you have already processed"),
			signedHeader("webhook-timestamp", "Unix time of this attempt in seconds"),
			signedHeader("webhook-signature", "Signature of the id, timestamp and body with the secret, as defined by Standard Webhooks. Two signatures while a secret is rotated"),
		},
		RequestBody: &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: reference}}},
		Responses: map[string]*huma.Response{
			"2XX":     {Description: "The message is received"},
			"410":     {Description: "The receiver is gone. Nothing is sent to it until it is enabled or saved again"},
			"default": {Description: "The message is retried if a retry can succeed"},
		},
	}}
}

func signedHeader(name, description string) *huma.Param {
	return &huma.Param{Name: name, In: "header", Required: true, Description: description, Schema: &huma.Schema{Type: huma.TypeString}}
}
