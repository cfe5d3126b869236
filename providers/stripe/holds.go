package stripe

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"time"

	stripego "github.com/stripe/stripe-go/v76"
	"github.com/stripe/stripe-go/v76/form"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// schedulingVersion is the first API version in which a draft's finalization can be scheduled:
// https://docs.stripe.com/changelog/acacia/2024-10-28/schedule-invoice-finalization
const schedulingVersion = "2024-10-28.acacia"

// Actions on draft invoices.
const (
	holdInvoice    = "hold"
	releaseInvoice = "release"

	finalizeOwnInvoice = "finalize_own" // finalizes a standalone invoice
)

// invoiceAction is the stored call that holds a draft, releases it, or finalizes a standalone invoice.
type invoiceAction struct {
	Action    string     `json:"action"`
	InvoiceID string     `json:"invoice_id,omitempty"`
	Until     *time.Time `json:"until,omitempty"` // for a hold: time at which Stripe finalizes the draft automatically

	Own *OwnInvoice `json:"own,omitempty"`
}

// FrameHold encodes a call that schedules a draft's finalization. Stripe then finalizes the draft at that
// time even if Odometer is down.
func (Provider) FrameHold(invoice string, until time.Time) (billing.Framed, error) {
	return frameAction(invoiceAction{Action: holdInvoice, InvoiceID: invoice, Until: &until})
}

// FrameRelease encodes a call that finalizes a draft. Stripe then collects the payment as usual.
func (Provider) FrameRelease(invoice string) (billing.Framed, error) {
	return frameAction(invoiceAction{Action: releaseInvoice, InvoiceID: invoice})
}

// frameAction encodes the call of a report that holds or releases an invoice.
func frameAction(a invoiceAction) (billing.Framed, error) {
	body, err := json.Marshal(a)
	if err != nil {
		return billing.Framed{}, fmt.Errorf("encode call: %w", err)
	}
	return billing.Framed{Body: body}, nil
}

// sendAction makes the call of an invoiceAction. Repeating an action is safe.
func (p Provider) sendAction(ctx context.Context, c providers.Credentials, s providers.Sending) providers.Outcome {
	var a invoiceAction
	if err := json.Unmarshal(s.Body, &a); err != nil {
		return providers.Outcome{Err: fmt.Errorf("read call: %w", err)}
	}
	answer, err := p.client.performAction(ctx, c.Secret, a, fmt.Sprintf("%s.%d", s.ReportID, s.Revision))
	if err == nil {
		return providers.Outcome{State: billing.Accepted, Answer: fmt.Sprintf("Stripe answered %d", answer.Status)}
	}
	return providers.Outcome{Err: advised(err), NewKey: answer.Replayed && answer.Status >= http.StatusInternalServerError}
}

// performAction schedules the finalization of a draft, or finalizes a draft or a standalone invoice.
func (c *Client) performAction(ctx context.Context, key string, a invoiceAction, idempotencyKey string) (Answer, error) {
	if a.Own != nil {
		return c.finalizeOwn(ctx, key, *a.Own, idempotencyKey)
	}
	ctx, x := withExchange(ctx)
	path, version, values := stripego.FormatURLPath("/v1/invoices/%s/finalize", a.InvoiceID), "", &form.Values{}
	if a.Action == holdInvoice {
		path, version = stripego.FormatURLPath("/v1/invoices/%s", a.InvoiceID), schedulingVersion
		values.Add("automatically_finalizes_at", strconv.FormatInt(a.Until.Unix(), 10))
	}
	var body raw
	err := c.backend.CallRaw(http.MethodPost, path, key, values,
		&stripego.Params{Context: ctx, IdempotencyKey: &idempotencyKey, Headers: versionHeader(version)}, &body)
	return judge(x, err)
}

// findAction reports whether an invoiceAction has taken effect on the invoice.
func (p Provider) findAction(ctx context.Context, c providers.Credentials, s providers.Sending) (providers.Found, error) {
	var a invoiceAction
	if err := json.Unmarshal(s.Body, &a); err != nil {
		return providers.Found{}, fmt.Errorf("read call: %w", err)
	}
	if a.Own != nil {
		return p.findOwnFinal(ctx, c, *a.Own)
	}
	in, err := p.client.readDraft(ctx, c.Secret, a.InvoiceID)
	if err != nil {
		return providers.Found{}, advised(err)
	}
	final := in.Transitions.FinalizedAt != 0
	if a.Action == holdInvoice && a.Until.Unix() == in.FinalizesAt || a.Action == releaseInvoice && final {
		return providers.Found{State: billing.Accepted, Answer: "found on the invoice"}, nil
	}
	return providers.Found{}, nil
}

// draft is an invoice with fields that only later API versions return, and the fields that users can edit.
type draft struct {
	invoice
	AutoAdvance bool  `json:"auto_advance"`
	FinalizesAt int64 `json:"automatically_finalizes_at"` // 0: no automatic finalization
	editable
}

// editable holds the fields of a draft, besides lines and metadata, that users can edit.
type editable struct {
	Description         json.RawMessage `json:"description"`
	Footer              json.RawMessage `json:"footer"`
	Discounts           json.RawMessage `json:"discounts"`
	CustomFields        json.RawMessage `json:"custom_fields"`
	CollectionMethod    json.RawMessage `json:"collection_method"`
	StatementDescriptor json.RawMessage `json:"statement_descriptor"`
}

// hash returns a hash of the draft's editable fields and metadata, so that changes are detected without
// storing the values.
func (d draft) hash() string {
	text, err := json.Marshal([]any{d.editable, d.Metadata})
	if err != nil {
		panic(err) // JSON that was decoded always encodes
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// readDraft returns an invoice with all of its lines. The invoice may already be final.
func (c *Client) readDraft(ctx context.Context, key, id string) (in draft, err error) {
	if err := c.readAs(ctx, key, schedulingVersion, stripego.FormatURLPath("/v1/invoices/%s", id), nil, &in); err != nil {
		return in, fmt.Errorf("get draft: %w", err)
	}
	if in.Lines.HasMore {
		in.Lines.Data, err = list[invoiceLine](ctx, c, key, stripego.FormatURLPath("/v1/invoices/%s/lines", id), query())
		if err != nil {
			return in, fmt.Errorf("list invoice lines: %w", err)
		}
	}
	return in, nil
}

// Draft reads an invoice that may not be final yet.
func (p Provider) Draft(ctx context.Context, c providers.Credentials, q providers.InvoiceQuestion) (billing.Draft, error) {
	read, err := p.client.readDraft(ctx, c.Secret, q.ID)
	if AnswerOf(err).Code == "resource_missing" {
		return billing.Draft{Gone: true}, nil
	}
	if err != nil {
		return billing.Draft{}, advised(err)
	}
	in := read.invoice.invoice()
	lines, err := p.lines(ctx, c, q, read.invoice, in)
	if err != nil {
		return billing.Draft{}, advised(err)
	}
	out := billing.Draft{
		FinalizedAt: in.FinalizedAt, Automatic: read.AutoAdvance, FinalizesAt: instant(read.FinalizesAt),
		Settings: read.hash(), Currency: in.Currency,
	}
	for i, l := range lines {
		price := read.Lines.Data[i].Price
		out.Lines = append(out.Lines, billing.DraftLine{
			ID: l.ID, MeterID: l.MeterID, ReportID: l.ReportID, Item: l.Item, Price: l.Price, Quantity: l.Quantity, Amount: l.Amount,
			Metered: price.Recurring.UsageType == metered && l.Item != "", UnitPrice: price.unitPrice(in.Currency),
		})
	}
	return out, nil
}

// maxUnitDecimals is the maximum number of decimals of a price's unit amount:
// https://docs.stripe.com/api/prices/object#price_object-unit_amount_decimal
const maxUnitDecimals = 12

// unitPrice returns the price of a unit, in the currency, if all units have the same price. Otherwise it
// returns nil.
func (p price) unitPrice(currency string) *metering.Decimal {
	if p.UnitAmount == nil || p.BillingScheme != "per_unit" || !p.isPerSingleUnit() {
		return nil
	}
	smallest, err := metering.ParseRounded(*p.UnitAmount, maxUnitDecimals)
	if err != nil {
		return nil
	}
	each := Amount(smallest, currency)
	return &each
}

// isPerSingleUnit reports whether the price applies to single units, without a transformation of the quantity.
func (p price) isPerSingleUnit() bool { return len(p.Transform) == 0 || string(p.Transform) == "null" }
