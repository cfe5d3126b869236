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

// Metadata fields of a standalone invoice: its name, and the period that it bills. ownScheduleKey is the number of the
// period's billing schedule, if that is not 0.
const (
	ownKey         = "odometer_invoice"
	ownStartKey    = "odometer_start"
	ownEndKey      = "odometer_end"
	ownScheduleKey = "odometer_schedule"
)

// OwnInvoice is a standalone invoice that Odometer creates for a period of a customer without a
// subscription. It is created once, and stays a draft until it has all lines.
type OwnInvoice struct {
	Name             string     `json:"name"` // identifies the invoice
	Customer         string     `json:"customer"`
	Period           chargedFor `json:"period"`
	Schedule         int        `json:"schedule,omitempty"`          // number of the billing schedule
	CollectionMethod string     `json:"collection_method,omitempty"` // "": charge_automatically
	DaysUntilDue     int64      `json:"days_until_due,omitempty"`    // only with send_invoice
	Currency         string     `json:"-"`                           // ISO 4217
	IdempotencyKey   string     `json:"-"`
}

// errOwnFinal means that the invoice accepts no more lines.
var errOwnFinal = errors.New("the period's invoice is no longer a draft")

// ownOf returns the standalone invoice of the message's period. The message sets a line of the invoice or finalizes the
// invoice.
func ownOf(m billing.Message) *OwnInvoice {
	name := fmt.Appendf(nil, "invoice/%d/%d/%d/%d/%d", m.TenantID, m.CustomerID, m.Connection, m.Stream, m.Window.Start.UnixMicro())
	own := &OwnInvoice{
		Name: uuid.NewSHA1(uuid.NameSpaceOID, name).String(), Customer: m.Customer, Period: chargedFor{m.Window.Start, m.Window.End}, Schedule: m.Stream,
		CollectionMethod: m.Destination.Address[collectionKey],
	}
	own.DaysUntilDue, _ = strconv.ParseInt(m.Destination.Address[daysKey], 10, 64) // 0 on error: none
	return own
}

// findOwn finds the standalone invoice among the customer's invoices that were created since the start of its period.
// id and status are "" if the invoice does not exist. Stripe lists an accepted invoice immediately.
func (c *Client) findOwn(ctx context.Context, key string, own OwnInvoice) (id, status string, err error) {
	since := seconds(own.Period.Start.Add(-maxClockSkew))
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

// draftOwn returns the id of the standalone invoice's draft, and creates the draft if it does not exist. The draft
// stays one until finalizeOwn finalizes it.
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
	ctx, x := withExchange(ctx)
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
	if own.Schedule > 0 {
		params.Metadata[ownScheduleKey] = strconv.Itoa(own.Schedule)
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

// finalizeOwn finalizes the standalone invoice, and lets Stripe collect its payment. If an earlier call has already
// finalized the invoice, finalizeOwn changes nothing and returns no error.
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
	ctx, x := withExchange(ctx)
	_, err = stripeinvoice.Client{B: c.backend, Key: key}.FinalizeInvoice(id, &stripego.InvoiceFinalizeInvoiceParams{
		Params: stripego.Params{Context: ctx, IdempotencyKey: &idempotencyKey}, AutoAdvance: new(true),
	})
	return judge(x, err)
}

// frameOwn encodes the call that finalizes the standalone invoice of a period.
func frameOwn(m billing.Message) (billing.Framed, error) {
	return frameAction(invoiceAction{Action: finalizeOwnInvoice, Own: ownOf(m)})
}

// findOwnFinal checks whether the standalone invoice of a period is final.
func (p Provider) findOwnFinal(ctx context.Context, c providers.Credentials, own OwnInvoice) (providers.Found, error) {
	_, status, err := p.client.findOwn(ctx, c.Secret, own)
	if err != nil || status == "" || status == "draft" {
		return providers.Found{}, advised(err)
	}
	return providers.Found{State: billing.Accepted, Answer: "found on the invoice"}, nil
}

// standalonePeriod reports whether the invoice is a standalone invoice of a period, and returns that period from the
// metadata. Stripe's own period fields hold the time of the calls that created the invoice.
func (in invoice) standalonePeriod() (period metering.Range, is bool) {
	start, err1 := time.Parse(time.RFC3339Nano, in.Metadata[ownStartKey])
	end, err2 := time.Parse(time.RFC3339Nano, in.Metadata[ownEndKey])
	if in.Metadata[ownKey] == "" || in.subscriptionAtStripe() != "" || err1 != nil || err2 != nil || !start.Before(end) {
		return metering.Range{}, false
	}
	return metering.Range{Start: start, End: end}, true
}

// paramsKey returns an idempotency key for creating the invoice. The key differs if any parameter differs,
// because Stripe rejects a key that is reused with other parameters.
func (own OwnInvoice) paramsKey(revision int) (string, error) {
	text, err := json.Marshal(own)
	if err != nil {
		return "", fmt.Errorf("encode invoice: %w", err)
	}
	return fmt.Sprintf("%s.%d", uuid.NewSHA1(uuid.NameSpaceOID, append(text, own.Currency...)), revision), nil
}
