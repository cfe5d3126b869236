package api

import (
	"maps"
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// describeMessages documents the messages that Odometer sends to tenants: to webhooks, and to the receiver of
// statements if a tenant uses that receiver as billing provider.
func (s *server) describeMessages() {
	document := s.api.OpenAPI()
	document.Webhooks = map[string]*huma.PathItem{}
	describeMessage[outbox.SyncSucceeded](document, metering.MessageSyncSucceeded, "A sync of a customer succeeded", toWebhooks)
	describeMessage[outbox.SyncFailed](document, metering.MessageSyncFailed, "The sync of a customer needs an operator", toWebhooks)
	describeMessage[outbox.SyncDelayed](document, metering.MessageSyncDelayed, "A sync of a customer has been open for more than 15 minutes",
		toWebhooks+"\n\nSent once for each sync, for the oldest open sync of a customer. Not sent if the customer's last sync failed.")
	describeMessage[outbox.PeriodClosed](document, metering.MessagePeriodClosed, "The totals of a billing period are final", toWebhooks)
	describeMessage[outbox.InvoiceHeld](document, metering.MessageInvoiceHeld, "A held invoice differs from the reports and needs an operator",
		toWebhooks+"\n\nSent each time that the invoice starts to differ.")
	describeMessage[discrepancyDetected](document, metering.MessageDiscrepancyDetected, "Amounts that should be equal differ",
		toWebhooks+" `kind` is the kind of discrepancy:\n\n"+
			"- `reconciliation_disputed`: the final invoices of a closed period bill more than was reported, or a different amount. Sent again whenever the difference changes.\n"+
			"- `usage_discrepancy`: the daily audit found totals that differ from the events. Sent once for each `day`.")
	describeMessage[outbox.CredentialExpiring](document, metering.MessageCredentialExpiring, "An API key or HMAC secret expires in 7 days",
		toWebhooks+"\n\nSent once for each credential. Not sent for a credential that was created with less than 7 days to live, or that is being rotated.")
	describeMessage[outbox.WebhookDisabled](document, metering.MessageWebhookDisabled, "Odometer disabled a webhook because its receiver is gone or fails",
		toWebhooks+" The disabled webhook does not receive this message. Not sent if the tenant disabled the webhook.")
	describeMessage[outbox.MemberInvited](document, metering.MessageMemberInvited, "An invitation is ready to be sent", toWebhooks)
	describeMessage[outbox.PasswordResetRequested](document, metering.MessagePasswordResetRequested, "A password reset was requested for a member",
		toWebhooks+"\n\nThe request is not authenticated, so it may not come from the member. Sent at most every ten minutes.")
	describeMessage[outbox.AlertTriggered](document, metering.MessageAlertTriggered, "A customer reached a threshold of an alert",
		toWebhooks+"\n\nSent once for each alert, customer, threshold and billing period. For `quota`, sent once for each quota and period of the quota, which `period` shows. For `silence`, sent once for each last event. `period` is then the time "+
			"from that event until the alert's `minutes` had passed.")
	describeMessage[outbox.QuotaExceeded](document, metering.MessageQuotaExceeded, "The usage of a customer exceeded a quota",
		toWebhooks+"\n\nSent once for each quota, customer and period of the quota, a few seconds after `used` is above `limit`. Usage that arrives after its period ended can still exceed the limit of that period, up to 100 periods back. Reservations are not counted.")
	describeMessage[outbox.WebhookTested](document, metering.MessageWebhookTest, "A webhook was tested", "Sent after `POST /v1/webhooks/{id}/test`.")
	describeMessage[webhook.Statement](document, webhook.UsageStatement, "The current bill of a billing period",
		"Sent to the receiver of statements if the billing provider is a webhook. Respond with 2xx after you have stored the statement.\n\n"+
			"A statement replaces earlier statements with the same customer, `stream` and period. Keep the statement with the highest `sequence`. "+
			"Also respond with 2xx to a statement with a lower `sequence`. Until you accept it, the customer gets no other statement.")
	describeMessage[webhook.Tried](document, webhook.Ping, "The receiver of statements is tested before it is saved", "Respond with 2xx.")
	document.Paths["/v1/billing/provider"].Put.Callbacks = callback(document, "receive-statement", "StatementMessage", webhook.UsageStatement, webhook.Ping)
	document.Paths["/v1/webhooks"].Post.Callbacks = callback(document, "receive-message", "Message", append(metering.MessageKind("").Values(), metering.MessageWebhookTest)...)
}

const toWebhooks = "Sent to the webhooks that subscribe to this event type."

// discrepancyDetected is the data of metering.MessageDiscrepancyDetected.
type discrepancyDetected struct{}

// Schema implements huma.SchemaProvider.
func (discrepancyDetected) Schema(schemas huma.Registry) *huma.Schema {
	return registerUnion(schemas, "DiscrepancyDetected", "kind", map[string]*huma.Schema{
		"reconciliation_disputed": schemas.Schema(reflect.TypeFor[outbox.ReconciliationDisputed](), true, ""),
		"usage_discrepancy":       schemas.Schema(reflect.TypeFor[outbox.UsageDisagrees](), true, ""),
	})
}

// registerUnion adds a schema with alternatives and returns a reference to it. field distinguishes the
// alternatives.
func registerUnion(schemas huma.Registry, name, field string, alternatives map[string]*huma.Schema) *huma.Schema {
	union := &huma.Schema{Discriminator: &huma.Discriminator{PropertyName: field, Mapping: map[string]string{}}}
	for _, value := range slices.Sorted(maps.Keys(alternatives)) {
		union.AnyOf = append(union.AnyOf, alternatives[value])
		union.Discriminator.Mapping[value] = alternatives[value].Ref
	}
	schemas.Map()[name] = union
	return &huma.Schema{Ref: "#/components/schemas/" + name}
}

// callback describes messages of these kinds as one callback of the operation that sets their URL. OpenAPI 3.0
// has no webhooks, and some client generators create only the types that an operation refers to.
func callback(document *huma.OpenAPI, id, schema string, kinds ...metering.MessageKind) map[string]map[string]*huma.PathItem {
	alternatives := map[string]*huma.Schema{}
	for _, kind := range kinds {
		alternatives[string(kind)] = document.Webhooks[string(kind)].Post.RequestBody.Content["application/json"].Schema
	}
	one := *document.Webhooks[string(kinds[0])].Post
	one.OperationID, one.Summary, one.Description = id, "Receive a message", "`type` is the type of the message."
	one.RequestBody = jsonBody(registerUnion(document.Components.Schemas, schema, "type", alternatives))
	return map[string]map[string]*huma.PathItem{"message": {"{$request.body#/url}": {Post: &one}}}
}

// describeMessage adds a kind of message to the webhooks of the document.
func describeMessage[Data any](document *huma.OpenAPI, kind metering.MessageKind, summary, description string) {
	schemas := document.Components.Schemas
	reference := schemas.Schema(reflect.TypeFor[metering.MessageOf[Data]](), true, "")
	message := schemas.SchemaFromRef(reference.Ref)
	message.Properties["type"] = &huma.Schema{Type: huma.TypeString, Enum: []any{kind}}
	document.Webhooks[string(kind)] = &huma.PathItem{Post: &huma.Operation{
		OperationID: string(kind), Security: noCredential, Summary: summary, Description: description, Tags: []string{"messages"},
		Parameters: []*huma.Param{
			signedHeader("webhook-id", "Id of the message, the same at every attempt. Ignore an id that you have already processed"),
			signedHeader("webhook-timestamp", "Unix time of this attempt in seconds"),
			signedHeader("webhook-signature", "Signature of the id, timestamp and body with the secret, as defined by Standard Webhooks. Two signatures while a secret is rotated"),
		},
		RequestBody: jsonBody(reference),
		Responses: map[string]*huma.Response{
			"2XX":     {Description: "The message is received"},
			"410":     {Description: "The receiver is gone. Nothing is sent to it until it is enabled or saved again"},
			"default": {Description: "The message is retried if a retry can succeed"},
		},
	}}
}

func jsonBody(schema *huma.Schema) *huma.RequestBody {
	return &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{"application/json": {Schema: schema}}}
}

func signedHeader(name, description string) *huma.Param {
	return &huma.Param{Name: name, In: "header", Required: true, Description: description, Schema: &huma.Schema{Type: huma.TypeString}}
}
