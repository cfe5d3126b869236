package stripe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// ListInvoices returns the ids of the invoices of a customer's subscriptions and of the standalone invoices. It also
// returns the subscriptions that were canceled within a period. It reads the subscriptions before the invoices: Stripe
// creates the last invoice of such a subscription during the cancellation, or never
// (https://docs.stripe.com/api/subscriptions/cancel), so the later list includes this invoice. A subscription that was
// canceled at the end of its period gets a renewal invoice, and is not returned.
func (p Provider) ListInvoices(ctx context.Context, c providers.Credentials, q providers.InvoiceListQuestion) (listed providers.ListedInvoices, err error) {
	subscriptions, err := list[subscription](ctx, p.client, c.Secret, "/v1/subscriptions", query("customer", q.Customer, "status", "canceled"))
	if err != nil {
		return listed, advised(fmt.Errorf("list subscriptions: %w", err))
	}
	since := q.Since
	var ended []metering.EndedSubscription
	for _, s := range subscriptions {
		last, cut := s.lastPeriod(q.Destinations)
		if !cut || last.End.Before(q.Since) {
			continue
		}
		ended = append(ended, metering.EndedSubscription{ID: s.ID, Customer: q.Customer, LastPeriod: last})
		since = earlier(since, last.Start)
	}
	of := query("customer", q.Customer, "created[gte]", strconv.FormatInt(since.Unix(), 10))
	invoices, err := list[invoice](ctx, p.client, c.Secret, "/v1/invoices", of)
	if err != nil {
		return listed, advised(fmt.Errorf("list invoices: %w", err))
	}
	for _, in := range slices.Backward(invoices) {
		if in.subscription() != "" {
			listed.Invoices = append(listed.Invoices, in.ID)
		}
	}
	for _, s := range ended {
		draft := func(in invoice) bool { return in.subscription() == s.ID && in.Transitions.FinalizedAt == 0 }
		if !slices.ContainsFunc(invoices, draft) {
			listed.Ended = append(listed.Ended, s)
		}
	}
	return listed, nil
}

// lastPeriod returns the last period of the subscription, until the time at which the subscription ended. cut reports
// whether the subscription ended within the period and one of its items is or was a destination of usage. If cut is
// false, the returned period is empty.
func (s subscription) lastPeriod(of []billing.Destination) (last metering.Range, cut bool) {
	for n, i := range s.items() {
		goes := func(d billing.Destination) bool {
			return d.Target != "" && (d.Target == i.MeterID || d.Target == i.ItemID) || d.Address[itemKey] != "" && d.Address[itemKey] == i.ItemID
		}
		at := metering.Range{Start: i.PeriodStart, End: instant(s.EndedAt)}
		end := cmp.Or(s.Items.Data[n].End, s.End)
		if s.EndedAt != 0 && s.EndedAt < end && !at.Empty() && slices.ContainsFunc(of, goes) {
			return at, true
		}
	}
	return last, false
}

// earlier returns the earlier of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
