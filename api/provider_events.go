package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
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
	if metering.CodeOf(err) == metering.CodeNoProvider {
		return nil, errNoStripe
	}
	if err != nil {
		return nil, err
	}
	events, ok := s.Providers[provider.Kind].(providers.Events)
	if !ok {
		return nil, errNoStripe
	}
	kept, ours, err := s.verified(tenant, provider, events, in)
	if err != nil {
		return nil, err
	}
	out := &stripeEventOutput{}
	out.Body.Received = true
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

func (s *server) verified(tenant metering.TenantID, p metering.Provider, events providers.Events, in *stripeEventInput) (event metering.ProviderEvent, ours bool, err error) {
	signing, err := s.Keyring.Open(tenant, db.ProviderWebhookSecret, p.SealedWebhookSecret)
	if err != nil {
		return event, false, err
	}
	key, err := s.Keyring.Open(tenant, db.ProviderSecret, p.SealedSecret)
	if err != nil {
		return event, false, err
	}
	event, ours, err = events.Verify(providers.Credentials{Account: p.Account, Secret: string(key)},
		providers.Notice{Body: in.RawBody, Signature: in.Signature, Secret: string(signing), Now: s.Now()})
	switch metering.CodeOf(err) {
	case metering.CodeUnauthorized:
		return event, false, errUnsigned.Because(err)
	case metering.CodeInvalid:
		return event, false, errNoEvent.Because(err)
	}
	return event, ours, err
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
