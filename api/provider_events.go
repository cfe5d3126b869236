package api

import (
	"context"
	"encoding/hex"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/workflows"
)

const (
	providerEventsPrefix = "/v1/provider-webhooks/"
	providerEventsRoute  = providerEventsPrefix + "{kind}/{tenant_id}"
	maxProviderEvent     = 1 << 20
)

// providerEventsPath returns the path to which a provider of the kind sends a tenant's events.
func providerEventsPath(kind metering.ProviderKind, tenant metering.TenantID) string {
	return strings.NewReplacer("{kind}", url.PathEscape(string(kind)), "{tenant_id}", tenant.String()).Replace(providerEventsRoute)
}

type providerEventInput struct {
	Kind     metering.ProviderKind `path:"kind" maxLength:"64" doc:"Type of the provider"`
	TenantID string                `path:"tenant_id" maxLength:"32" example:"ten_1"`
	RawBody  []byte                `contentType:"application/json"`

	header func(string) string
}

// Resolve keeps access to the request's headers, because the name of the signature header depends on the
// provider.
func (in *providerEventInput) Resolve(ctx huma.Context) []error {
	in.header = ctx.Header
	return nil
}

type providerEventOutput struct {
	Body struct {
		Received bool `json:"received"`
	}
}

func (s *server) registerProviderEvents() {
	huma.Register(s.api, s.receivingProviderEvents(post("receive-provider-event", providerEventsRoute, Public, "Receive an event from a billing provider",
		"Only the provider calls this endpoint. The provider's signature is the credential.\n\n"+
			"- 200 means that the event is stored. The event is processed once, even if it is delivered several times.\n"+
			"- Events of other accounts, or of the account's other mode, return 200 and are discarded.")), s.providerEvent)
	s.describeProviderEvent()
}

// providerEvent stores an event of a provider and starts its workflow. The signature is the only credential. The
// tenant knows the secret and can sign any number of events, so the run is urgent up to a number per minute.
// If Temporal does not respond within five seconds, the event stays stored and the error makes the provider
// send it again.
func (s *server) providerEvent(ctx context.Context, in *providerEventInput) (*providerEventOutput, error) {
	out, err := s.storeProviderEvent(ctx, in)
	sender, name := s.providerCredential(exchangeOf(ctx).request)
	return out, s.failures.note(ctx, sender, name, err)
}

// providerCredential returns a hash of the sender's address and the request's path. sender is the same hash
// in hexadecimal, under which invalid events are counted.
//
// The path contains the tenant, because providers send the events of all tenants from a few addresses.
// Invalid events for one tenant therefore do not block the events of other tenants. The hash excludes the
// signature, because each event has a different signature.
func (s *server) providerCredential(r *http.Request) (sender string, name credentialName) {
	name = hashName(s.failures.addressOf(r), r.URL.Path)
	return hex.EncodeToString(name[:]), name
}

// refuseForgers refuses a request if its sender has sent too many forged events. It runs before the body is
// read.
func (s *server) refuseForgers(ctx huma.Context, next func(huma.Context)) {
	if err := s.failures.refuse(s.providerCredential(exchangeOf(ctx.Context()).request)); err != nil {
		s.refuseOperation(ctx, err)
		return
	}
	next(ctx)
}

// storeProviderEvent verifies an event, stores it, and starts the workflow that handles it. An event that belongs to
// another account or mode is discarded. An event that was already handled starts no workflow.
func (s *server) storeProviderEvent(ctx context.Context, in *providerEventInput) (*providerEventOutput, error) {
	events, sends := s.Providers[in.Kind].(providers.Events)
	if !sends {
		return nil, errNoEvents
	}
	tenant, ok := metering.ParseTenantID(in.TenantID)
	if !ok {
		return nil, notSigned(events, nil)
	}
	provider, err := s.Store.Providers.Active(ctx, tenant)
	if metering.CodeOf(err) == metering.CodeNoProvider || err == nil && provider.Kind != in.Kind {
		return nil, notSigned(events, err)
	}
	if err != nil {
		return nil, err
	}
	event, ours, err := s.verifyProviderEvent(tenant, provider, events, in)
	if err != nil {
		return nil, err
	}
	event.Connection = provider.ID
	out := &providerEventOutput{}
	out.Body.Received = true
	if !ours {
		return out, nil
	}
	if !storable(event.EventID + event.ObjectID + event.Customer) {
		return nil, errNoEvent
	}
	kept, handled, err := s.Store.ProviderEvents.Store(ctx, tenant, event, s.Now())
	if err != nil || handled {
		return out, err
	}
	return out, workflows.StartHandleProviderEvent(ctx, s.Temporal, tenant, kept.Customer, kept.Row, s.takeUrgent(ctx, "provider-events", tenant))
}

var errNoEvents = metering.Errorf(metering.CodeNotFound, "providers of this type send no events")

// notSigned returns the error for an event with a wrong signature. An unknown tenant and a tenant with
// another provider get the same error, so that the response does not reveal a tenant's provider.
func notSigned(events providers.Events, cause error) error {
	return metering.Errorf(codeMalformed, "the header %s is not a signature of this body with the webhook secret that the tenant has saved", events.Signals().Header).
		Because(errors.Join(errForged, cause))
}

var errForged = errors.New("the event is not signed by the provider")

var errNoEvent = metering.Errorf(codeMalformed, "the body is not a valid event of this provider")

// verifyProviderEvent verifies the signature of an event. ours is false if the event belongs to another account or
// mode.
func (s *server) verifyProviderEvent(tenant metering.TenantID, p metering.Provider, events providers.Events, in *providerEventInput) (event metering.ProviderEvent, ours bool, err error) {
	signing, err := s.Keyring.Open(tenant, seal.ProviderWebhookSecret, p.SealedWebhookSecret)
	if err != nil {
		return event, false, err
	}
	key, err := s.Keyring.Open(tenant, seal.ProviderSecret, p.SealedSecret)
	if err != nil {
		return event, false, err
	}
	event, ours, err = events.Verify(providers.Credentials{Account: p.Account, Secret: string(key)},
		providers.Notice{Body: in.RawBody, Signature: in.header(events.Signals().Header), Secret: string(signing), Now: s.Now()})
	switch metering.CodeOf(err) {
	case metering.CodeUnauthorized:
		return event, false, notSigned(events, err)
	case metering.CodeInvalid:
		return event, false, errNoEvent.Because(err)
	}
	return event, ours, err
}

// receivingProviderEvents prepares the operation that receives provider events. It sets the maximum size of the body,
// skips the validation of the body, refuses forgers before the body is read, and documents the signature headers.
func (s *server) receivingProviderEvents(op huma.Operation) huma.Operation {
	op = withBodyUpTo(op, maxProviderEvent)
	op.Middlewares = append(op.Middlewares, s.refuseForgers)
	op.SkipValidateBody = true // the signature covers the exact bytes
	for _, kind := range s.Providers.Kinds() {
		if events, sends := s.Providers[kind].(providers.Events); sends {
			op.Parameters = append(op.Parameters, &huma.Param{
				Name: events.Signals().Header, In: "header", Schema: &huma.Schema{Type: huma.TypeString}, Description: "The signature, of a provider of type " + string(kind),
			})
		}
	}
	op.Errors = append(op.Errors, http.StatusBadRequest, http.StatusNotFound)
	return op
}

// describeProviderEvent documents the body of provider events, which the framework knows only as bytes.
func (s *server) describeProviderEvent() {
	document := s.api.OpenAPI()
	document.Components.Schemas.Map()["ReceivedEvent"] = &huma.Schema{
		Type: huma.TypeObject, Description: "An event of the provider, in any version of its API", AdditionalProperties: true,
		Properties: map[string]*huma.Schema{"id": {Type: huma.TypeString}, "type": {Type: huma.TypeString}},
	}
	document.Paths[providerEventsRoute].Post.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{
		"application/json": {Schema: &huma.Schema{Ref: "#/components/schemas/ReceivedEvent"}},
	}}
}
