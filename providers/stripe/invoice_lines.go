package stripe

import (
	"context"
	"fmt"
	"slices"

	"github.com/google/uuid"
	stripego "github.com/stripe/stripe-go/v76"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// renewal is the billing reason of an invoice that Stripe creates at the end of a period.
const renewal = "subscription_cycle"

// Invoice returns an invoice, with the meter that each of its lines bills.
func (p Provider) Invoice(ctx context.Context, c providers.Credentials, q providers.InvoiceQuestion) (metering.Invoice, error) {
	read, err := p.client.readInvoice(ctx, c.Secret, q.ID)
	if err != nil {
		return metering.Invoice{}, advised(err)
	}
	in := read.invoice()
	last, err := p.client.endsPeriod(ctx, c.Secret, in)
	if err != nil {
		return metering.Invoice{}, advised(err)
	}
	out := metering.Invoice{
		ID: in.ID, Customer: in.CustomerID, Subscription: in.SubscriptionID, Status: in.Status, Void: in.Void, Reason: in.BillingReason, Renewal: last,
		Currency: in.Currency, Total: in.Total, Period: metering.Range{Start: in.PeriodStart, End: in.PeriodEnd}, CreatedAt: in.CreatedAt, FinalizedAt: in.FinalizedAt,
	}
	out.Lines, err = p.lines(ctx, c, q, read, in)
	return out, advised(err)
}

// lines returns the lines of an invoice, with the meters that they bill.
func (p Provider) lines(ctx context.Context, c providers.Credentials, q providers.InvoiceQuestion, read invoice, in Invoice) (lines []metering.InvoiceLine, err error) {
	billed := usageLines{question: q, client: p.client, key: c.Secret}
	for i, l := range in.Lines {
		lines = append(lines, l.line())
		item := read.Lines.Data[i].Price.item()
		item.ItemID = l.ItemID
		billed.items = append(billed.items, item)
	}
	return lines, billed.addMeters(ctx, lines)
}

// endsPeriod reports whether an invoice is the last one of its billing period. The last invoice of a subscription's
// period is a renewal or, for a canceled subscription, the subscription's latest invoice, because no renewal follows. A
// standalone invoice is the only invoice of its period, and counts as the last one when it is final.
func (c *Client) endsPeriod(ctx context.Context, key string, in Invoice) (bool, error) {
	switch {
	case billing.IsOwnInvoice(in.SubscriptionID):
		return !in.FinalizedAt.IsZero(), nil
	case in.BillingReason == renewal, in.SubscriptionID == "":
		return in.BillingReason == renewal, nil
	}
	var s struct {
		Status string    `json:"status"`
		Latest reference `json:"latest_invoice"`
	}
	if err := c.read(ctx, key, stripego.FormatURLPath("/v1/subscriptions/%s", in.SubscriptionID), nil, &s); err != nil {
		return false, fmt.Errorf("get subscription: %w", err)
	}
	return s.Status == "canceled" && string(s.Latest) == in.ID, nil
}

// line converts the line, without the meter that it bills.
func (l InvoiceLine) line() metering.InvoiceLine {
	line := metering.InvoiceLine{
		ID: l.ID, Item: l.ItemID, Price: l.PriceID, Proration: l.Proration, Quantity: l.Quantity, Amount: l.Amount,
		Period: metering.Range{Start: l.PeriodStart, End: l.PeriodEnd},
	}
	if id, err := uuid.Parse(l.Identifier); err == nil {
		line.ReportID = &id
	}
	return line
}

// usageLines finds the meter that each line of an invoice bills.
type usageLines struct {
	question providers.InvoiceQuestion
	items    []Item // one for each line
	client   *Client
	key      string
}

// addMeters sets the meters of lines in three passes, the most reliable one first:
//
//  1. by item: a current or previous destination of usage has the line's subscription item;
//  2. by price: the line's price matches a meter, as for subscription items;
//  3. by meter: a current or previous destination has the Stripe meter of the line's price.
//
// A line gets no meter if an earlier pass has set the same meter on a line with the same period. Such a
// line bills the same usage again, at a price that Odometer has not selected for the meter.
func (u *usageLines) addMeters(ctx context.Context, lines []metering.InvoiceLine) error {
	for _, find := range []func(context.Context, Item) (metering.MeterID, error){u.byItem, u.byPrice, u.byMeter} {
		found := make(map[int]metering.MeterID)
		for i, line := range lines {
			if line.MeterID != 0 || line.ReportID != nil {
				continue
			}
			meter, err := find(ctx, u.items[i])
			if err != nil {
				return err
			}
			surer := func(l metering.InvoiceLine) bool { return l.MeterID == meter && l.Period == line.Period }
			if !slices.ContainsFunc(lines, surer) {
				found[i] = meter
			}
		}
		for i, meter := range found {
			lines[i].MeterID = meter
		}
	}
	return nil
}

// byItem returns the meter with a destination at the subscription item, or 0.
func (u *usageLines) byItem(_ context.Context, of Item) (metering.MeterID, error) {
	for _, d := range u.question.Destinations {
		item := d.Address[itemKey]
		if d.Method == UsageRecord {
			item = d.Target
		}
		if item != "" && item == of.ItemID {
			return d.MeterID, nil
		}
	}
	return 0, nil
}

// byPrice returns the meter that Match assigns to the item's metered price. It returns 0 if no meter or several meters
// match.
func (u *usageLines) byPrice(ctx context.Context, of Item) (found metering.MeterID, err error) {
	if of.UsageType != metered {
		return 0, nil
	}
	if err := u.client.addMeter(ctx, u.key, &of); err != nil {
		return 0, fmt.Errorf("get meter: %w", err)
	}
	for _, meter := range u.question.Meters {
		_, reason := Match([]Item{of}, meter.Slug, u.question.Mapping)
		if reason != "" {
			continue
		}
		if found != 0 {
			return 0, nil // several meters match the price, so none is chosen
		}
		found = meter.ID
	}
	return found, nil
}

// byMeter returns the meter with a destination at the item's Stripe meter, or 0.
func (u *usageLines) byMeter(_ context.Context, of Item) (metering.MeterID, error) {
	for _, d := range u.question.Destinations {
		if of.MeterID != "" && d.Target == of.MeterID {
			return d.MeterID, nil
		}
	}
	return 0, nil
}
