package stripe

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// Keys of billing.Destination.Address in the destinations of charges.
const (
	productKey     = "product"
	taxBehaviorKey = "tax_behavior"
	taxCodeKey     = "tax_code"
	collectionKey  = "collection_method"
	daysKey        = "days_until_due"
)

// setChargeDestinations adds the destination of each meter's charge to side.Charges: the next invoice of a
// subscription. If a subscription in side.Others bills the meter's usage, the same subscription bills the charge.
// Otherwise side.Subscription bills the charge. If no meter's price identifies side.Subscription, it is the customer's
// only subscription. Without a subscription, each period gets a standalone invoice. stopped reports whether a
// subscription is unpaid, paused or incomplete. If stopped is true and no subscription runs, the charges wait.
func (p Provider) setChargeDestinations(ctx context.Context, c providers.Credentials, side *billing.Side, items []Item, stopped bool, q providers.Question) error {
	reason, refused := selectSubscription(side, items, stopped, q), ""
	if reason == "" || len(side.Others) > 0 {
		credits, err := p.client.Credits(ctx, c.Secret, q.Customer)
		if err != nil {
			return advised(err)
		}
		if credits {
			refused = "the customer has billing credits at Stripe, which apply only to metered prices; set bills to quantities, or void the credits"
		}
	}
	side.Charges = []billing.Destination{}
	for _, meter := range q.Meters {
		at, excluded := side, billing.NoTarget(cmp.Or(reason, refused))
		for n := range side.Others {
			other := &side.Others[n]
			if slices.ContainsFunc(other.Destinations, func(d billing.Destination) bool { return d.MeterID == meter.ID }) {
				charge := chargeDestination(meter, *other, billing.NoTarget(refused), q.Text)
				other.Charges = append(other.Charges, charge)
				at, excluded = other, charge.Excluded
				if excluded.Code == "" {
					excluded = otherSubscription("the meter is charged with subscription %s, which has other billing periods", other.Subscription)
				}
			}
		}
		side.Charges = append(side.Charges, chargeDestination(meter, *at, excluded, q.Text))
	}
	return nil
}

// chargeDestination returns the destination of the meter's charge on the next invoice of side.Subscription. The meter
// is excluded for the given reason, or because the settings name no product for the meter.
func chargeDestination(meter metering.Meter, side billing.Side, excluded billing.ExclusionReason, text metering.InvoiceText) billing.Destination {
	product := text.ProductOf(meter.Slug)
	if excluded.Code == "" && product == "" {
		excluded = billing.NoTarget("the provider's settings name no product for the meter's invoice lines; set product or products with PUT /v1/billing/provider")
	}
	if excluded.Code != "" {
		return billing.Destination{MeterID: meter.ID, Excluded: excluded}
	}
	d := billing.Destination{
		MeterID: meter.ID, Target: side.Subscription, Method: PendingItem, Counting: CountingOf(PendingItem), NotNegative: true,
		Address: map[string]string{productKey: product},
	}
	if text.DaysUntilDue > 0 {
		d.Address[daysKey] = strconv.FormatInt(text.DaysUntilDue, 10)
	}
	for key, value := range map[string]string{taxBehaviorKey: text.TaxBehavior, taxCodeKey: text.TaxCode, collectionKey: text.CollectionMethod} {
		if value != "" {
			d.Address[key] = value
		}
	}
	return d
}

// selectSubscription sets side.Subscription and its period to the customer's only subscription, unless a meter's price
// has already identified a subscription. It returns "", or the reason why the meters that no subscription in
// side.Others bills cannot be charged. stopped reports whether a subscription is unpaid, paused or incomplete.
func selectSubscription(side *billing.Side, items []Item, stopped bool, q providers.Question) string {
	switch {
	case q.Customer == "":
		_, reason := (&router{Question: q}).itemFor(metering.Meter{})
		return reason
	case side.Subscription != "":
		return ""
	case len(side.Others) > 0:
		return "the customer's subscriptions have periods of their own, and none of them bills this meter"
	case len(items) == 0 && stopped:
		return "the customer's subscription at Stripe is unpaid, paused or incomplete; the charges wait until it is active again or has ended"
	case len(items) == 0:
		return "" // the customer's periods get standalone invoices
	case slices.ContainsFunc(items, func(i Item) bool { return i.SubscriptionID != items[0].SubscriptionID }):
		return "the customer has several subscriptions at Stripe, and none has a price of a meter; add a meter's price to the subscription that should be charged"
	}
	followed := items[0].side(q.Customer)
	followed.Destinations, followed.Others = side.Destinations, side.Others
	*side = followed
	return ""
}

// lineOf decodes the invoice line that a report creates or updates.
func lineOf(s providers.Sending) (PendingLine, error) {
	c, err := callOf(s)
	if err != nil {
		return PendingLine{}, err
	}
	id := s.ReportID.String()
	if c.Own != nil {
		c.Own.Currency = c.Currency
		if c.Own.IdempotencyKey, err = c.Own.paramsKey(s.Revision); err != nil {
			return PendingLine{}, err
		}
	}
	return PendingLine{
		ItemID: s.Object, Key: c.Line, Identifier: id, Customer: c.Customer, SubscriptionID: c.Target, Currency: c.Currency,
		Amount: Smallest(c.Quantity, c.Currency), Description: c.Description, Period: metering.Range(*c.Period),
		Product: c.Product, Own: c.Own, TaxBehavior: c.TaxBehavior, TaxCode: c.TaxCode, Since: s.Window.Start, About: c.About, IdempotencyKey: fmt.Sprintf("%s.%d", id, s.Revision),
	}, nil
}

// lineKeyOf returns the key of the invoice line that a message sets. All reports that set the line have the
// same key.
func lineKeyOf(m billing.Message) string {
	name := fmt.Appendf(nil, "%d/%d/%d/%s/%d/%d/%d/", m.TenantID, m.CustomerID, m.Connection, m.Target, m.Meter.ID, m.Period.Unix(), m.Window.Start.Unix())
	return uuid.NewSHA1(uuid.NameSpaceOID, strconv.AppendBool(name, m.Late)).String()
}

// setLine makes one attempt at the call of a report that creates or updates an invoice line. If Stripe refuses, it
// reads the line to find out whether an invoice bills the line already.
func (p Provider) setLine(ctx context.Context, c providers.Credentials, s providers.Sending) providers.Outcome {
	line, err := lineOf(s)
	if err != nil {
		return providers.Outcome{Err: err}
	}
	item, answer, err := p.client.SetLine(ctx, c.Secret, line)
	if err == nil {
		return providers.Outcome{State: billing.Accepted, Answer: fmt.Sprintf("Stripe answered %d", answer.Status), Object: item}
	}
	if errors.Is(err, errOwnFinal) {
		return providers.Outcome{State: billing.Rejected, Answer: "the period's invoice is no longer a draft; the next period bills the remaining amount"}
	}
	if line.ItemID = item; item != "" && metering.CodeOf(err) == metering.CodeProviderRefuse {
		state, unread := p.client.Line(ctx, c.Secret, line)
		switch {
		case unread != nil:
		case state.Final && state.Identifier == line.Identifier:
			return providers.Outcome{State: billing.Accepted, Answer: "found on an invoice", Object: item}
		case state.Final:
			return providers.Outcome{State: billing.Rejected, Answer: "an invoice already bills the line; the next period bills the remaining amount", Object: item}
		case state.ItemID == "":
			err = metering.Errorf(metering.CodeProviderRefuse, "the line's invoice item was deleted at Stripe; charge the amount there manually").Because(err)
		}
	}
	saved := answer.Replayed && answer.Status >= http.StatusInternalServerError
	return providers.Outcome{Err: advised(err), Object: item, NewKey: saved}
}

// findLineReport checks at Stripe whether the report was the last one to create or update its invoice line.
func (p Provider) findLineReport(ctx context.Context, c providers.Credentials, s providers.Sending) (providers.Found, error) {
	line, err := lineOf(s)
	if err != nil {
		return providers.Found{}, err
	}
	state, err := p.client.Line(ctx, c.Secret, line)
	if err != nil || state.Identifier != line.Identifier {
		return providers.Found{}, advised(err)
	}
	return providers.Found{State: billing.Accepted, Answer: "found on the customer's invoice item"}, nil
}
