package stripe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	stripego "github.com/stripe/stripe-go/v76"
	stripeinvoice "github.com/stripe/stripe-go/v76/invoice"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// The metadata of an invoice of ours: its name, and the period that it bills.
const (
	ownKey      = "odometer_invoice"
	ownStartKey = "odometer_start"
	ownEndKey   = "odometer_end"
)

// OwnInvoice is an invoice of a period that is made here, for a customer without
// a subscription. It is a draft until it has all lines, and is made once.
type OwnInvoice struct {
	Name             string     `json:"name"` // that it is looked for by
	Customer         string     `json:"customer"`
	Period           chargedFor `json:"period"`
	CollectionMethod string     `json:"collection_method,omitempty"` // "": charge_automatically
	DaysUntilDue     int64      `json:"days_until_due,omitempty"`    // of one that is sent
	Currency         string     `json:"-"`                           // ISO 4217
	IdempotencyKey   string     `json:"-"`
}

// errOwnFinal says that the invoice takes no lines any more.
var errOwnFinal = errors.New("the period's invoice is no longer a draft")

// ownOf is the invoice of the period whose lines, or whose end, a message is of.
func ownOf(m billing.Message) *OwnInvoice {
	name := fmt.Appendf(nil, "invoice/%d/%d/%d/%d", m.TenantID, m.CustomerID, m.Connection, m.Window.Start.UnixMicro())
	own := &OwnInvoice{
		Name: uuid.NewSHA1(uuid.NameSpaceOID, name).String(), Customer: m.Customer, Period: chargedFor{m.Window.Start, m.Window.End},
		CollectionMethod: m.Destination.Address[collectionKey],
	}
	own.DaysUntilDue, _ = strconv.ParseInt(m.Destination.Address[daysKey], 10, 64) // as it was saved; else none
	return own
}

// findOwn finds the invoice among those that the customer got since its period
// began; "": there is none. Stripe lists at once what it took.
func (c *Client) findOwn(ctx context.Context, key string, own OwnInvoice) (id, status string, err error) {
	since := seconds(own.Period.Start.Add(-clocks))
	all, err := list[invoice](ctx, c, key, "/v1/invoices", query("customer", own.Customer, "created[gte]", since))
	if err != nil {
		return "", "", fmt.Errorf("list invoices: %w", err)
	}
	i := slices.IndexFunc(all, func(in invoice) bool { return in.Metadata[ownKey] == own.Name })
	if i < 0 {
		return "", "", nil
	}
	return all[i].ID, all[i].Status, nil
}

// draftOwn finds the invoice, or makes it as a draft that nothing makes final but
// finalizeOwn.
func (c *Client) draftOwn(ctx context.Context, key string, own OwnInvoice) (id string, answer Answer, err error) {
	id, status, err := c.findOwn(ctx, key, own)
	switch {
	case err != nil:
		return "", AnswerOf(err), err
	case status != "" && status != "draft":
		return "", Answer{}, errOwnFinal
	case id != "":
		return id, Answer{}, nil
	}
	ctx, x := open(ctx)
	params := &stripego.InvoiceParams{
		Params:                      stripego.Params{Context: ctx, IdempotencyKey: &own.IdempotencyKey},
		Customer:                    &own.Customer,
		Currency:                    new(strings.ToLower(own.Currency)),
		AutoAdvance:                 new(false),
		CollectionMethod:            new(automatically),
		PendingInvoiceItemsBehavior: new("exclude"),
		Metadata: map[string]string{
			ownKey: own.Name, ownStartKey: own.Period.Start.UTC().Format(time.RFC3339Nano), ownEndKey: own.Period.End.UTC().Format(time.RFC3339Nano),
		},
	}
	if own.CollectionMethod != "" {
		params.CollectionMethod = &own.CollectionMethod
	}
	if own.DaysUntilDue > 0 {
		params.DaysUntilDue = &own.DaysUntilDue
	}
	made, err := stripeinvoice.Client{B: c.backend, Key: key}.New(params)
	answer, err = judge(x, err)
	if err != nil {
		return "", answer, err
	}
	return made.ID, answer, nil
}

// finalizeOwn makes the invoice final, and has Stripe collect it. One that is
// final already was made so before.
func (c *Client) finalizeOwn(ctx context.Context, key string, own OwnInvoice, idempotencyKey string) (Answer, error) {
	id, status, err := c.findOwn(ctx, key, own)
	switch {
	case err != nil:
		return AnswerOf(err), err
	case id == "":
		return Answer{}, metering.Errorf(metering.CodeProviderRefuse, "the draft of the period's invoice was deleted at Stripe; charge its amounts there manually")
	case status != "draft":
		return Answer{Status: http.StatusOK}, nil
	}
	ctx, x := open(ctx)
	_, err = stripeinvoice.Client{B: c.backend, Key: key}.FinalizeInvoice(id, &stripego.InvoiceFinalizeInvoiceParams{
		Params: stripego.Params{Context: ctx, IdempotencyKey: &idempotencyKey}, AutoAdvance: new(true),
	})
	return judge(x, err)
}

// frameOwn makes the bytes by which a period's own invoice becomes final.
func frameOwn(m billing.Message) (billing.Framed, error) {
	return frameAction(invoiceAction{Action: finalizeOwnInvoice, Own: ownOf(m)})
}

// findOwnFinal sees whether a period's own invoice is final.
func (p Provider) findOwnFinal(ctx context.Context, c providers.Credentials, own OwnInvoice) (providers.Found, error) {
	_, status, err := p.client.findOwn(ctx, c.Secret, own)
	if err != nil || status == "" || status == "draft" {
		return providers.Found{}, advised(err)
	}
	return providers.Found{State: billing.Accepted, Answer: "found on the invoice"}, nil
}

// ours says whether the invoice is a period's own one, and which period that is:
// Stripe's is that of the calls which made it.
func (in invoice) ours() (period metering.Range, is bool) {
	start, err1 := time.Parse(time.RFC3339Nano, in.Metadata[ownStartKey])
	end, err2 := time.Parse(time.RFC3339Nano, in.Metadata[ownEndKey])
	if in.Metadata[ownKey] == "" || in.subscriptionAtStripe() != "" || err1 != nil || err2 != nil || !start.Before(end) {
		return metering.Range{}, false
	}
	return metering.Range{Start: start, End: end}, true
}

// paramsKey tells calls apart that make one invoice with other parameters.
func (own OwnInvoice) paramsKey(revision int) (string, error) {
	text, err := json.Marshal(own)
	if err != nil {
		return "", fmt.Errorf("encode invoice: %w", err)
	}
	return fmt.Sprintf("%s.%d", uuid.NewSHA1(uuid.NameSpaceOID, append(text, own.Currency...)), revision), nil
}
