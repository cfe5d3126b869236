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

// The events that say something about a customer's periods.
const (
	InvoiceCreated      = "invoice.created"
	InvoiceFinalized    = "invoice.finalized"
	SubscriptionUpdated = "customer.subscription.updated"
)

// tolerance is how far a signature's time may be from ours: https://docs.stripe.com/webhooks#replay-attacks
const tolerance = 300 * time.Second

// Event is one delivery of Stripe's. Deliveries come more than once and in any
// order; what they carry is how things stood when they were made.
type Event struct {
	ID           string
	Type         string
	Account      string // "" unless it is about a connected account
	Livemode     bool
	CreatedAt    time.Time
	Invoice      *Invoice      // of InvoiceCreated and InvoiceFinalized; not always with all of its lines
	Subscription *Subscription // of SubscriptionUpdated
}

// Subscription is a customer's subscription. Its items lack what only their meters say.
type Subscription struct {
	ID         string
	CustomerID string
	Status     string
	Items      []Item
}

// VerifyEvent reads a delivery that was signed with secret about now. payload
// is the request's body byte for byte; any API version will do.
func VerifyEvent(payload []byte, header, secret string, now time.Time) (Event, error) {
	signed, ok := signedAt(header)
	if !ok || secret == "" || webhook.ValidatePayloadIgnoringTolerance(payload, header, secret) != nil {
		return Event{}, metering.Errorf(metering.CodeUnauthorized, "the Stripe-Signature header does not sign this body with the saved secret")
	}
	if now.Sub(signed).Abs() > tolerance {
		return Event{}, metering.Errorf(metering.CodeUnauthorized, "the signature was made more than five minutes ago or ahead")
	}
	return parseEvent(payload)
}

// signedAt is stripe-go's reading of the header, but for one that tells two times.
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
		return Event{}, metering.Invalid("body", "must be an event of Stripe's")
	}
	event := Event{ID: in.ID, Type: in.Type, Account: in.Account, Livemode: in.Livemode, CreatedAt: instant(in.Created)}
	switch in.Type {
	case InvoiceCreated, InvoiceFinalized:
		var object invoice
		if json.Unmarshal(in.Data.Object, &object) != nil || object.ID == "" {
			return Event{}, metering.Invalid("body.data.object", "must be an invoice")
		}
		made := object.invoice()
		event.Invoice = &made
	case SubscriptionUpdated:
		var object subscription
		if json.Unmarshal(in.Data.Object, &object) != nil || object.ID == "" {
			return Event{}, metering.Invalid("body.data.object", "must be a subscription")
		}
		event.Subscription = &Subscription{object.ID, string(object.Customer), object.Status, object.items()}
	}
	return event, nil
}

// Signals says which events a tenant has Stripe send.
func (Provider) Signals() providers.Signals {
	return providers.Signals{Types: []string{SubscriptionUpdated, InvoiceCreated, InvoiceFinalized}, Header: "Stripe-Signature"}
}

// Verify reads an event. There is nothing to do about one of another type, of
// an account connected to the tenant's, or of the mode that the tenant's key
// does not see.
func (Provider) Verify(c providers.Credentials, n providers.Notice) (event metering.ProviderEvent, ours bool, err error) {
	e, err := VerifyEvent(n.Body, n.Signature, n.Secret, n.Now)
	if err != nil {
		return event, false, err
	}
	event = metering.ProviderEvent{EventID: e.ID, Kind: e.Type, MadeAt: e.CreatedAt}
	switch {
	case e.Account != "" && e.Account != c.Account, e.Livemode != Livemode(c.Secret):
		return event, false, nil
	case e.Invoice != nil:
		event.ObjectID, event.Customer, event.Invoice = e.Invoice.ID, e.Invoice.CustomerID, true
	case e.Subscription != nil:
		event.ObjectID, event.Customer = e.Subscription.ID, e.Subscription.CustomerID
	default:
		return event, false, nil
	}
	return event, true, nil
}
