package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/workflows"
)

const (
	stripeEventsPath = "/v1/provider-webhooks/stripe/{tenant_id}"
	maxProviderEvent = 1 << 20
)

type stripeEventInput struct {
	TenantID  string `path:"tenant_id" maxLength:"32" example:"ten_1"`
	Signature string `header:"Stripe-Signature" maxLength:"4096"`
	RawBody   []byte `contentType:"application/json"`
}

type stripeEventOutput struct {
	Body struct {
		Received bool `json:"received"`
	}
}

// stripeEvent keeps what Stripe tells a tenant of, and has it handled. Only
// the signature says that it is Stripe. What Temporal does not take in five
// seconds is kept all the same, and Stripe is asked to send it again.
func (s *server) stripeEvent(ctx context.Context, in *stripeEventInput) (*stripeEventOutput, error) {
	tenant, ok := metering.ParseTenantID(in.TenantID)
	if !ok {
		return nil, errNoStripe
	}
	provider, err := s.Store.Providers.Active(ctx, tenant)
	if metering.CodeOf(err) == metering.CodeNoProvider || err == nil && provider.Kind != metering.Stripe {
		return nil, errNoStripe
	}
	if err != nil {
		return nil, err
	}
	event, err := s.verified(tenant, provider, in)
	if err != nil {
		return nil, err
	}
	key, err := s.Keyring.Open(tenant, db.ProviderSecret, provider.SealedSecret)
	if err != nil {
		return nil, err
	}
	out := &stripeEventOutput{}
	out.Body.Received = true
	kept, ours := eventOf(event, provider.Account, stripe.Livemode(string(key)))
	if !ours {
		return out, nil
	}
	if !storable(kept.EventID + kept.ObjectID + kept.Customer) {
		return nil, errNoEvent
	}
	row, handled, err := s.Store.ProviderEvents.Store(ctx, tenant, kept, s.Now())
	if err != nil || handled {
		return out, err
	}
	return out, workflows.StartHandleProviderEvent(ctx, s.Temporal, tenant, row)
}

// Whether there is no such tenant or it is billed elsewhere is nobody's business.
var errNoStripe = metering.Errorf(metering.CodeNotFound, "no tenant with this id is billed through Stripe")

var errUnsigned = metering.Errorf(codeMalformed, "the Stripe-Signature header does not sign this body with the secret that the tenant has saved")

var errNoEvent = metering.Errorf(codeMalformed, "the body is not an event of Stripe's")

func (s *server) verified(tenant metering.TenantID, p metering.Provider, in *stripeEventInput) (stripe.Event, error) {
	secret, err := s.Keyring.Open(tenant, db.ProviderWebhookSecret, p.SealedWebhookSecret)
	if err != nil {
		return stripe.Event{}, err
	}
	event, err := stripe.VerifyEvent(in.RawBody, in.Signature, string(secret), s.Now())
	switch metering.CodeOf(err) {
	case metering.CodeUnauthorized:
		return stripe.Event{}, errUnsigned.Because(err)
	case metering.CodeInvalid:
		return stripe.Event{}, errNoEvent.Because(err)
	}
	return event, err
}

// eventOf is what is kept of an event. There is nothing to do about one of
// another kind, of an account connected to the tenant's, or of the mode that
// the tenant's key does not see.
func eventOf(e stripe.Event, account string, livemode bool) (kept metering.ProviderEvent, ours bool) {
	kept = metering.ProviderEvent{Account: account, EventID: e.ID, Kind: e.Type, MadeAt: e.CreatedAt}
	switch {
	case e.Account != "" && e.Account != account, e.Livemode != livemode:
		return kept, false
	case e.Invoice != nil:
		kept.ObjectID, kept.Customer = e.Invoice.ID, e.Invoice.CustomerID
	case e.Subscription != nil:
		kept.ObjectID, kept.Customer = e.Subscription.ID, e.Subscription.CustomerID
	default:
		return kept, false
	}
	return kept, true
}

func stripeEvents(op huma.Operation) huma.Operation {
	op.MaxBodyBytes = maxProviderEvent
	op.SkipValidateBody = true // the signature is over its bytes
	op.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: &huma.Schema{Type: huma.TypeObject, Description: "An event of Stripe's, of any API version", AdditionalProperties: true}},
	}}
	op.Errors = append(op.Errors, http.StatusBadRequest, http.StatusNotFound)
	return op
}
