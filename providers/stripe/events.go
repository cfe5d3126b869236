package stripe

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v76/webhook"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// Event types that concern a customer's periods or the amounts of final invoices:
// https://docs.stripe.com/api/events/types
const (
	InvoiceCreated       = "invoice.created"
	InvoiceFinalized     = "invoice.finalized"
	InvoiceVoided        = "invoice.voided"
	InvoiceUncollectible = "invoice.marked_uncollectible"
	CreditNoteCreated    = "credit_note.created"
	CreditNoteVoided     = "credit_note.voided"
	SubscriptionUpdated  = "customer.subscription.updated"
	SubscriptionDeleted  = "customer.subscription.deleted" // the subscription has ended
)

// tolerance is the maximum difference between a signature's time and our clock:
// https://docs.stripe.com/webhooks#replay-attacks
const tolerance = 300 * time.Second

// Event is one delivery of an event. Stripe can deliver an event more than once and in any order. The
// object is a snapshot from the time of the event.
type Event struct {
	ID           string
	Type         string
	Account      string // "": not about a connected account
	Livemode     bool
	CreatedAt    time.Time
	Invoice      *Invoice      // only for an invoice event; may lack some lines
	CreditNote   *CreditNote   // only for a credit note event
	Subscription *Subscription // only for a subscription event
}

// CreditNote credits a part of a final invoice.
type CreditNote struct {
	ID         string
	InvoiceID  string
	CustomerID string
}

// Subscription is a customer's subscription. Its items lack the fields of their meters.
type Subscription struct {
	ID         string
	CustomerID string
	Status     string
	Items      []Item
}

// VerifyEvent checks the signature and its time, and decodes the event. payload is the exact body of the
// request. Every API version is accepted.
func VerifyEvent(payload []byte, header, secret string, now time.Time) (Event, error) {
	signed, ok := signedAt(header)
	if !ok || secret == "" || webhook.ValidatePayloadIgnoringTolerance(payload, header, secret) != nil {
		return Event{}, metering.Errorf(metering.CodeUnauthorized, "the Stripe-Signature header does not match this body and the saved webhook_secret")
	}
	if now.Sub(signed).Abs() > tolerance {
		return Event{}, metering.Errorf(metering.CodeUnauthorized, "the signature's time must be within five minutes of the server's time")
	}
	return parseEvent(payload)
}

// signedAt parses the time of the header as stripe-go does, except that it rejects a header with two times.
func signedAt(header string) (at time.Time, ok bool) {
	for part := range strings.SplitSeq(header, ",") {
		text, isTime := strings.CutPrefix(part, "t=")
		if !isTime {
			continue
		}
		seconds, err := strconv.ParseInt(text, 10, 64)
		if err != nil || ok {
			return time.Time{}, false
		}
		at, ok = time.Unix(seconds, 0), true
	}
	return at, ok
}

// parseEvent decodes an event. It decodes the event's object only for the event types above.
func parseEvent(payload []byte) (Event, error) {
	var in struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Account  string `json:"account"`
		Livemode bool   `json:"livemode"`
		Created  int64  `json:"created"`
		Data     struct {
			Object json.RawMessage `json:"object"`
		} `json:"data"`
	}
	if json.Unmarshal(payload, &in) != nil || in.ID == "" || in.Type == "" {
		return Event{}, metering.Invalid("body", "must be a Stripe event")
	}
	event := Event{ID: in.ID, Type: in.Type, Account: in.Account, Livemode: in.Livemode, CreatedAt: instant(in.Created)}
	switch in.Type {
	case InvoiceCreated, InvoiceFinalized, InvoiceVoided, InvoiceUncollectible:
		var object invoice
		if json.Unmarshal(in.Data.Object, &object) != nil || object.ID == "" {
			return Event{}, metering.Invalid("body.data.object", "must be an invoice")
		}
		made := object.invoice()
		event.Invoice = &made
	case CreditNoteCreated, CreditNoteVoided:
		var object struct {
			ID       string    `json:"id"`
			Invoice  reference `json:"invoice"`
			Customer reference `json:"customer"`
		}
		if json.Unmarshal(in.Data.Object, &object) != nil || object.ID == "" || object.Invoice == "" {
			return Event{}, metering.Invalid("body.data.object", "must be a credit note of an invoice")
		}
		event.CreditNote = &CreditNote{object.ID, string(object.Invoice), string(object.Customer)}
	case SubscriptionUpdated, SubscriptionDeleted:
		var object subscription
		if json.Unmarshal(in.Data.Object, &object) != nil || object.ID == "" {
			return Event{}, metering.Invalid("body.data.object", "must be a subscription")
		}
		event.Subscription = &Subscription{object.ID, string(object.Customer), object.Status, object.items()}
	}
	return event, nil
}

// Signals returns the event types and the signature header of Stripe.
func (Provider) Signals() providers.Signals {
	return providers.Signals{Header: "Stripe-Signature", Types: []string{
		SubscriptionUpdated, SubscriptionDeleted, InvoiceCreated, InvoiceFinalized, InvoiceVoided, InvoiceUncollectible, CreditNoteCreated, CreditNoteVoided,
	}}
}

// Verify checks the signature of an event and decodes it. ours is false for another event type, for a
// connected account, and for a mode other than that of the tenant's key.
func (Provider) Verify(c providers.Credentials, n providers.Notice) (event metering.ProviderEvent, ours bool, err error) {
	e, err := VerifyEvent(n.Body, n.Signature, n.Secret, n.Now)
	if err != nil {
		return event, false, err
	}
	event, ours = e.providerEvent(c)
	return event, ours, nil
}

// providerEvent returns the event with the ids of its object and customer, but without the object, which the caller
// reads from Stripe. ours has the same meaning as for Verify.
func (e Event) providerEvent(c providers.Credentials) (event metering.ProviderEvent, ours bool) {
	event = metering.ProviderEvent{EventID: e.ID, Kind: e.Type, MadeAt: e.CreatedAt}
	switch {
	case e.Account != "" && e.Account != c.Account, e.Livemode != Livemode(c.Secret):
		return event, false
	case e.Invoice != nil:
		event.ObjectID, event.Customer, event.Invoice = e.Invoice.ID, e.Invoice.CustomerID, true
	case e.CreditNote != nil:
		event.ObjectID, event.Customer, event.Invoice = e.CreditNote.InvoiceID, e.CreditNote.CustomerID, true
	case e.Subscription != nil:
		event.ObjectID, event.Customer = e.Subscription.ID, e.Subscription.CustomerID
	default:
		return event, false
	}
	return event, true
}
