package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// Webhook is a tenant's endpoint for messages, without its secret.
type Webhook struct {
	ID             string                   `json:"id" example:"whk_3"`
	URL            string                   `json:"url"`
	Description    string                   `json:"description"`
	EventTypes     []metering.MessageKind   `json:"event_types" doc:"Types of the messages that the webhook receives"`
	SecretLastFour string                   `json:"secret_last_four"`
	FormerSecret   *time.Time               `json:"former_secret_until" doc:"Time until which messages are also signed with the previous secret. An operator can keep that secret longer"`
	CreatedAt      time.Time                `json:"created_at"`
	Enabled        bool                     `json:"enabled"`
	DisabledAt     *time.Time               `json:"disabled_at" doc:"Time at which the webhook was disabled. No messages are stored for it since then"`
	Because        metering.DisabledBecause `json:"disabled_because,omitempty" doc:"Reason why Odometer disabled the webhook. 'gone': the receiver returned 410. 'failing': deliveries failed for five days"`
	FailingSince   *time.Time               `json:"failing_since" doc:"Time of the first failure since the last successful delivery"`
}

func showWebhook(e metering.Endpoint) Webhook {
	return Webhook{
		ID: e.ID.String(), URL: e.URL, Description: e.Description, EventTypes: e.EventTypes, SecretLastFour: e.LastFour, FormerSecret: e.FormerUntil,
		CreatedAt: e.CreatedAt.UTC(), Enabled: e.DisabledAt == nil, DisabledAt: e.DisabledAt, Because: e.DisabledBecause, FailingSince: e.FailingSince,
	}
}

type createdWebhook struct {
	Secret string `json:"secret" doc:"Signing secret of the messages (Standard Webhooks), shown only in this response"`
	Webhook
}

type createWebhookInput struct {
	Repeatable
	Body struct {
		URL         string                 `json:"url" maxLength:"2048"`
		Description string                 `json:"description,omitempty" maxLength:"255"`
		EventTypes  []metering.MessageKind `json:"event_types" minItems:"1" uniqueItems:"true" doc:"Types of the messages that the webhook receives. 'webhook.test' cannot be selected: test messages are always sent"`
		Secret      *string                `json:"secret,omitempty" maxLength:"128" doc:"'whsec_' followed by 24 to 64 bytes in base64. Created if omitted"`
	}
}

type createWebhookOutput struct{ Body createdWebhook }

func (s *server) registerWebhooks() {
	huma.Register(s.api, created(post("create-webhook", "/v1/webhooks", HooksWrite, "Create a webhook",
		"The webhook receives messages of its event types. The signing secret is shown only in this response.\n\n"+ofCharges)), s.createWebhook)
	huma.Register(s.api, get("list-webhooks", "/v1/webhooks", HooksRead, "List webhooks",
		"Webhooks are listed in order of creation, without their secrets."), s.listWebhooks)
	huma.Register(s.api, get("get-webhook", "/v1/webhooks/{id}", HooksRead, "Get a webhook",
		"The secret is not returned."), s.getWebhook)
	huma.Register(s.api, patch("update-webhook", "/v1/webhooks/{id}", HooksWrite, "Update, disable or enable a webhook",
		"Updates the fields that the body contains and keeps the other fields. Messages that arise while a webhook is disabled are not sent to it later.\n\n"+
			"A change of `url` or `event_types` also requires the permission `billing:read`, if the webhook has or gets `alert.triggered` or `invoice.held`."), s.updateWebhook)
	huma.Register(s.api, remove("delete-webhook", "/v1/webhooks/{id}", HooksWrite, "Delete a webhook and its deliveries",
		"Messages that were not delivered yet are discarded."), s.deleteWebhook)
	huma.Register(s.api, accepted(post("test-webhook", "/v1/webhooks/{id}/test", HooksWrite, "Send a test message to a webhook",
		"Sends a message of type `webhook.test`, even if the webhook's `event_types` do not contain it.\n\n"+
			sendsOfWebhook)), s.testWebhook)
	huma.Register(s.api, get("list-deliveries", "/v1/webhooks/{id}/deliveries", HooksRead, "List a webhook's deliveries",
		"Deliveries are listed newest first."), s.listDeliveries)
	huma.Register(s.api, get("get-delivery", "/v1/webhooks/{id}/deliveries/{message}", HooksRead, "Get a delivery with its body and attempts",
		"Returns the body as it was signed and sent, and every attempt with its response.\n\n"+ofCharges), s.getDelivery)
	huma.Register(s.api, accepted(post("redeliver", "/v1/webhooks/{id}/deliveries/{message}/redeliver", HooksWrite, "Redeliver a message",
		"Sends the message again with the same id and body, so that the receiver can recognize a repeat.\n\n"+
			sendsOfWebhook+"\n\n"+ofCharges)), s.redeliver)
}

func (s *server) createWebhook(ctx context.Context, in *createWebhookInput) (*createWebhookOutput, error) {
	who := principalOf(ctx)
	if err := requireCharges(ctx, in.Body.EventTypes...); err != nil {
		return nil, err
	}
	if err := s.checkWebhook(&in.Body.URL, &in.Body.Description); err != nil {
		return nil, err
	}
	secret := in.Body.Secret
	if secret == nil {
		secret = new(webhook.NewSecret())
	}
	if err := webhook.CheckSecret("body.secret", *secret); err != nil {
		return nil, err
	}
	sealed, err := s.Keyring.Seal(who.Tenant.ID, seal.EndpointSecret, []byte(*secret))
	if err != nil {
		return nil, err
	}
	endpoint := metering.Endpoint{
		URL: in.Body.URL, Description: in.Body.Description, EventTypes: in.Body.EventTypes, Sealed: sealed, LastFour: lastFour(*secret),
	}
	shown, repeated, err := once(ctx, s, in.Repeatable, "create-webhook", in.Body, func(within db.Creators) (Webhook, error) {
		made, err := within.Webhooks.Create(ctx, who.Tenant.ID, who.Actor, endpoint, s.Now())
		return showWebhook(made), err
	})
	if err != nil {
		return nil, err
	}
	if repeated {
		return nil, secretNotRepeated(shown.ID, shown.SecretLastFour)
	}
	return &createWebhookOutput{createdWebhook{*secret, shown}}, nil
}

// ofCharges is the API text about requireCharges.
const ofCharges = "`alert.triggered` and `invoice.held` also require the permission `billing:read`, because their messages can contain charges."

// requireCharges returns an error if kinds contains a kind of message that can contain charges and the caller
// lacks BillingRead.
func requireCharges(ctx context.Context, kinds ...metering.MessageKind) error {
	who := principalOf(ctx)
	for _, kind := range []metering.MessageKind{metering.MessageAlertTriggered, metering.MessageInvoiceHeld} {
		if slices.Contains(kinds, kind) && !BillingRead.allows(who) {
			return metering.Errorf(metering.CodeForbidden, "%s lacks permission %s, which %s requires because its messages can contain charges", who, BillingRead, kind)
		}
	}
	return nil
}

// checkWebhook returns an error if the URL or the description is invalid. A nil value is not checked.
func (s *server) checkWebhook(url, description *string) error {
	if url != nil {
		if err := s.Guard.CheckURL("body.url", *url); err != nil {
			return err
		}
	}
	if description != nil && !storable(*description) {
		return metering.Invalid("body.description", "must be UTF-8 without NUL")
	}
	return nil
}

type listWebhooksOutput struct{ Body List[Webhook] }

func (s *server) listWebhooks(ctx context.Context, _ *struct{}) (*listWebhooksOutput, error) {
	endpoints, err := s.Store.Webhooks.List(ctx, principalOf(ctx).Tenant.ID)
	if err != nil {
		return nil, err
	}
	out := &listWebhooksOutput{List[Webhook]{Data: []Webhook{}}}
	for _, e := range endpoints {
		out.Body.Data = append(out.Body.Data, showWebhook(e))
	}
	return out, nil
}

// WebhookPath identifies a webhook in a path.
type WebhookPath struct {
	ID string `path:"id" example:"whk_3"`
}

func (p WebhookPath) endpoint() (metering.EndpointID, error) {
	id, ok := metering.ParseEndpointID(p.ID)
	if !ok {
		return 0, metering.Errorf(metering.CodeNotFound, "there is no such webhook")
	}
	return id, nil
}

type webhookOutput struct{ Body Webhook }

func (s *server) getWebhook(ctx context.Context, in *WebhookPath) (*webhookOutput, error) {
	id, err := in.endpoint()
	if err != nil {
		return nil, err
	}
	e, err := s.Store.Webhooks.Get(ctx, principalOf(ctx).Tenant.ID, id)
	if err != nil {
		return nil, err
	}
	return &webhookOutput{showWebhook(e)}, nil
}

type updateWebhookInput struct {
	WebhookPath
	Body struct {
		URL         *string                `json:"url,omitempty" maxLength:"2048"`
		Description *string                `json:"description,omitempty" maxLength:"255"`
		EventTypes  []metering.MessageKind `json:"event_types,omitempty" minItems:"1" uniqueItems:"true"`
		Enabled     *bool                  `json:"enabled,omitempty" doc:"'false' disables the webhook and discards its waiting messages. 'true' enables it for new messages"`
	}
}

func (s *server) updateWebhook(ctx context.Context, in *updateWebhookInput) (*webhookOutput, error) {
	who := principalOf(ctx)
	id, err := in.endpoint()
	if err != nil {
		return nil, err
	}
	if err := s.requireChargesOfUpdate(ctx, id, in); err != nil {
		return nil, err
	}
	if err := s.checkWebhook(in.Body.URL, in.Body.Description); err != nil {
		return nil, err
	}
	e, err := s.Store.Webhooks.Update(ctx, who.Tenant.ID, who.Actor, id, access.EndpointChange(in.Body), s.Now())
	if err != nil {
		return nil, err
	}
	return &webhookOutput{showWebhook(e)}, nil
}

// requireChargesOfUpdate applies requireCharges to the previous and the new event types, if the update
// changes the URL or the event types.
func (s *server) requireChargesOfUpdate(ctx context.Context, id metering.EndpointID, in *updateWebhookInput) error {
	e, err := s.Store.Webhooks.Get(ctx, principalOf(ctx).Tenant.ID, id)
	if err != nil {
		return err
	}
	sorted := func(kinds []metering.MessageKind) []metering.MessageKind { return slices.Sorted(slices.Values(kinds)) }
	sameURL := in.Body.URL == nil || *in.Body.URL == e.URL
	if sameURL && (in.Body.EventTypes == nil || slices.Equal(sorted(in.Body.EventTypes), sorted(e.EventTypes))) {
		return nil
	}
	return requireCharges(ctx, slices.Concat(e.EventTypes, in.Body.EventTypes)...)
}

type deleteWebhookOutput struct {
	Body struct {
		ID      string `json:"id"`
		Deleted bool   `json:"deleted"`
	}
}

func (s *server) deleteWebhook(ctx context.Context, in *WebhookPath) (*deleteWebhookOutput, error) {
	who := principalOf(ctx)
	id, err := in.endpoint()
	if err != nil {
		return nil, err
	}
	if err := s.Store.Webhooks.Delete(ctx, who.Tenant.ID, who.Actor, id); err != nil {
		return nil, err
	}
	out := new(deleteWebhookOutput)
	out.Body.ID, out.Body.Deleted = id.String(), true
	return out, nil
}

// Delivery is the delivery of a message to a webhook.
type Delivery struct {
	ID        string                  `json:"id" doc:"Id of the message, sent as webhook-id"`
	EventType deliveredKind           `json:"event_type"`
	CreatedAt time.Time               `json:"created_at"`
	Status    metering.DeliveryStatus `json:"status" doc:"State of the delivery. Redeliver a failed message to send it again"`
	Attempts  int                     `json:"attempts" doc:"Number of attempts since the message was created or redelivered"`
	NextTry   *time.Time              `json:"next_attempt_at"`
	SettledAt *time.Time              `json:"settled_at"`
}

func showDelivery(d metering.Delivery) Delivery {
	return Delivery{d.ID.String(), deliveredKind(d.Kind), d.At.UTC(), d.Status, d.Attempts, d.DueAt, d.SettledAt}
}

type listDeliveriesInput struct {
	WebhookPath
	Paging
	Status metering.DeliveryStatus `query:"status"`
}

type listDeliveriesOutput struct{ Body List[Delivery] }

// listDeliveries lists the webhook's messages of the last 30 days, newest first.
func (s *server) listDeliveries(ctx context.Context, in *listDeliveriesInput) (*listDeliveriesOutput, error) {
	tenant := principalOf(ctx).Tenant.ID
	id, err := in.endpoint()
	if err != nil {
		return nil, err
	}
	if _, err := s.Store.Webhooks.Get(ctx, tenant, id); err != nil {
		return nil, err
	}
	var before uuid.UUID
	if err := s.readPageToken(ctx, in.PageToken, &before); err != nil {
		return nil, err
	}
	list, err := s.Store.Deliveries.List(ctx, tenant, id, in.Status, before, in.PageSize)
	if err != nil {
		return nil, err
	}
	cursorOf := func(d metering.Delivery) uuid.UUID { return d.ID }
	return &listDeliveriesOutput{listOf(ctx, s, list, showDelivery, cursorOf)}, nil
}

// DeliveryPath identifies a delivery in a path.
type DeliveryPath struct {
	WebhookPath
	Message string `path:"message" doc:"Id of the message"`
}

func (p DeliveryPath) delivery() (endpoint metering.EndpointID, message uuid.UUID, err error) {
	if endpoint, err = p.endpoint(); err != nil {
		return 0, message, err
	}
	if message, err = uuid.Parse(p.Message); err != nil {
		return 0, message, metering.Errorf(metering.CodeNotFound, "there is no such delivery")
	}
	return endpoint, message, nil
}

type attempt struct {
	At      time.Time `json:"at"`
	TookMS  int64     `json:"took_ms"`
	Status  int       `json:"status" doc:"HTTP status of the response. 0 if there was no response"`
	Problem string    `json:"problem" doc:"Error of the attempt. Empty if the attempt succeeded"`
}

type deliveryDetails struct {
	Delivery
	Message string    `json:"body" doc:"Body of the message, the same in every attempt"`
	Made    []attempt `json:"attempts_made" doc:"Attempts, oldest first"`
}

type deliveryOutput struct{ Body deliveryDetails }

func (s *server) getDelivery(ctx context.Context, in *DeliveryPath) (*deliveryOutput, error) {
	endpoint, message, err := in.delivery()
	if err != nil {
		return nil, err
	}
	d, attempts, err := s.Store.Deliveries.Get(ctx, principalOf(ctx).Tenant.ID, endpoint, message)
	if err != nil {
		return nil, err
	}
	if err := requireCharges(ctx, d.Kind); err != nil {
		return nil, err
	}
	body, err := d.Body()
	if err != nil {
		return nil, err
	}
	shown := deliveryDetails{showDelivery(d), string(body), []attempt{}}
	for _, a := range attempts {
		shown.Made = append(shown.Made, attempt{a.At.UTC(), a.Took.Milliseconds(), a.Status, a.Problem})
	}
	return &deliveryOutput{shown}, nil
}

type sentOutput struct {
	Status int
	Body   struct {
		ID        string `json:"id" doc:"Id of the message"`
		StatusURL string `json:"status_url" doc:"Path of the delivery"`
	}
}

// sent returns the response to a request that sends a message: the message's id, and the path of its delivery.
func (p WebhookPath) sent(message uuid.UUID) *sentOutput {
	out := &sentOutput{Status: http.StatusAccepted}
	out.Body.ID, out.Body.StatusURL = message.String(), "/v1/webhooks/"+p.ID+"/deliveries/"+message.String()
	return out
}

// sendsOfWebhook is the API text about countRequested.
const sendsOfWebhook = "Limits of tests and redeliveries together: 10 a minute for each webhook, 60 a minute for the tenant."

// Maximum number of requested messages per minute, for tests and redeliveries together.
const (
	requestedOfWebhook = 10
	requestedOfTenant  = 60 // also bounds a tenant that recreates its webhooks
)

// countRequested counts a test or a redelivery against the limits of the webhook and the tenant.
func (s *server) countRequested(ctx context.Context, id metering.EndpointID) error {
	requested := "webhook-messages:" + principalOf(ctx).Tenant.ID.String()
	if a := s.minutes.take(ctx, requested+":"+id.String(), requestedOfWebhook); !a.allowed {
		return tooMany(a, "a webhook can have at most %d tests and redeliveries a minute", requestedOfWebhook)
	}
	if a := s.minutes.take(ctx, requested, requestedOfTenant); !a.allowed {
		return tooMany(a, "a tenant can have at most %d tests and redeliveries a minute", requestedOfTenant)
	}
	return nil
}

// testWebhook stores a message of the kind webhook.test for the webhook. Workers deliver it like any other message.
func (s *server) testWebhook(ctx context.Context, in *WebhookPath) (*sentOutput, error) {
	id, err := in.endpoint()
	if err != nil {
		return nil, err
	}
	if err := s.countRequested(ctx, id); err != nil {
		return nil, err
	}
	if err := s.auditAsked(ctx, "webhook.test", id.String(), nil); err != nil {
		return nil, err
	}
	message, err := s.Store.Deliveries.Test(ctx, principalOf(ctx).Tenant.ID, id, s.Now())
	if err != nil {
		return nil, err
	}
	return in.sent(message), nil
}

// redeliver schedules another delivery of a message. Workers deliver it.
func (s *server) redeliver(ctx context.Context, in *DeliveryPath) (*sentOutput, error) {
	who := principalOf(ctx)
	endpoint, message, err := in.delivery()
	if err != nil {
		return nil, err
	}
	d, _, err := s.Store.Deliveries.Get(ctx, who.Tenant.ID, endpoint, message)
	if err != nil {
		return nil, err
	}
	if err := requireCharges(ctx, d.Kind); err != nil {
		return nil, err
	}
	if err := s.countRequested(ctx, endpoint); err != nil {
		return nil, err
	}
	if err := s.Store.Deliveries.Redeliver(ctx, who.Tenant.ID, who.Actor, endpoint, message, s.Now()); err != nil {
		return nil, err
	}
	return in.sent(message), nil
}
