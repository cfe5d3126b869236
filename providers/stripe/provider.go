package stripe

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// Provider is Stripe as a billing provider.
type Provider struct{ client *Client }

// NewProvider returns the provider that uses the client.
func NewProvider(client *Client) Provider { return Provider{client} }

// rememberedFor is how long Odometer relies on Stripe to recognize a repeated call. It is less than the documented
// 24 hours.
const rememberedFor = 23 * time.Hour

// Describe returns the properties of Stripe. AtOnce is 1, because Stripe limits the rate of an account's calls
// and the sync of a customer makes many calls.
func (Provider) Describe() providers.Description {
	return providers.Description{Kind: metering.Stripe, Name: "Stripe", Settings: settings, Invoices: true, AtOnce: 1, Timeout: Timeout, Remembers: rememberedFor, CountsWithin: rememberedFor}
}

// Read returns the customer's state at Stripe. The customer's billing periods are those of one subscription.
// Subscriptions with different periods get their own billing schedules.
func (p Provider) Read(ctx context.Context, c providers.Credentials, q providers.Question) (billing.Side, error) {
	r := router{Question: q, side: billing.Side{Customer: q.Customer}}
	var subscriptions []subscription
	if q.Customer != "" {
		var err error
		if r.items, subscriptions, err = p.client.items(ctx, c.Secret, q.Customer); err != nil {
			return r.side, advised(unknownCustomer(err))
		}
	}
	r.follow()
	stopped := false // a subscription is unpaid, paused or incomplete
	for _, s := range subscriptions {
		r.side.Runs, stopped = append(r.side.Runs, s.run()), stopped || s.stopped()
	}
	for _, meter := range q.Meters {
		item, reason := r.itemFor(meter)
		d := billing.Destination{MeterID: meter.ID, Excluded: billing.NoTarget(reason)}
		if reason == "" {
			price, reason, err := p.client.priceOfItem(ctx, c.Secret, item)
			if err != nil {
				return r.side, advised(err)
			}
			if d.Excluded = billing.NoTarget(reason); reason == "" {
				d = item.destination(meter.ID)
				d.Price = price
			}
		}
		r.route(item, d)
	}
	if !q.Amounts {
		return r.side, nil
	}
	return r.side, p.setChargeDestinations(ctx, c, &r.side, r.items, stopped, q)
}

// Price decodes a stored price of Stripe.
func (Provider) Price(terms []byte) (billing.ProviderPrice, error) { return ReadPrice(terms) }

// unknownCustomer returns an error that explains the correction if err means that Stripe does not know the customer. It
// returns any other error unchanged.
func unknownCustomer(err error) error {
	if AnswerOf(err).Code != "resource_missing" {
		return err
	}
	return metering.Errorf(metering.CodeProviderRefuse, "Stripe has no customer with the customer's billing_provider_id; correct billing_provider_id").Because(err)
}

// advised adds causes to the error of a call: providers.RetryLater if Stripe asked to wait, and providers.OwnRefusal if
// Stripe refused only this customer. Every refusal concerns only this customer, except a refusal of the API key.
func advised(err error) error {
	answer := AnswerOf(err)
	key := answer.Status == 0 || answer.Status == http.StatusUnauthorized || answer.Status == http.StatusForbidden
	return providers.Advised(err, answer.RetryAfter, !key)
}

// router finds the destination of the usage of each meter.
type router struct {
	providers.Question
	items []Item
	side  billing.Side
}

// itemFor returns the item to which the meter's usage is sent, or the reason why there is no such item.
func (r *router) itemFor(meter metering.Meter) (Item, string) {
	if r.Customer == "" {
		return Item{}, "the customer has no billing_provider_id; set it to the id of the customer at Stripe"
	}
	item, reason := Match(r.items, meter.Slug, r.Mapping)
	if reason == "" {
		_, reason = item.Method()
	}
	return item, reason
}

// follow selects the subscription that determines the customer's periods, and sets r.side to it. If a meter still uses
// the subscription that determined them until now, follow keeps that subscription. Otherwise follow selects the
// subscription of the first meter with an item in a subscription without its own billing schedule.
func (r *router) follow() {
	for _, keep := range []bool{true, false} {
		for _, meter := range r.Meters {
			item, reason := r.itemFor(meter)
			if reason == "" && r.side.Subscription == "" && (item.SubscriptionID == r.Followed || !keep && !slices.Contains(r.Streams, item.SubscriptionID)) {
				r.side = item.side(r.Customer)
			}
		}
	}
}

// route adds the destination of a meter. The destination belongs to the customer's own state if the item's
// subscription is the followed one, or has the same periods and no billing schedule of its own. Otherwise
// it belongs to the state of the item's subscription. The meter is excluded for now if one subscription's
// period begins when the other's ends, because their periods may be equal but read at different times.
func (r *router) route(i Item, d billing.Destination) {
	at, own := i.period(), r.side.Period
	switch {
	case i.SubscriptionID == "", i.SubscriptionID == r.side.Subscription, at == own && !slices.Contains(r.Streams, i.SubscriptionID):
	case r.side.Subscription == "":
		r.addToOther(i, d)
		d = billing.Destination{MeterID: d.MeterID, Excluded: otherSubscription("the meter is reported with subscription %s, which has its own billing periods", i.SubscriptionID)}
	case at.Start.Equal(own.End), at.End.Equal(own.Start):
		d = billing.Destination{MeterID: d.MeterID, Excluded: otherSubscription("subscription %s is currently in another period than %s, which bills the customer's other meters", i.SubscriptionID, r.side.Subscription)}
	default:
		r.addToOther(i, d)
		d = billing.Destination{MeterID: d.MeterID, Excluded: otherSubscription("the meter is reported with subscription %s; its billing periods differ from those of %s, which bills the customer's other meters", i.SubscriptionID, r.side.Subscription)}
	}
	r.side.Destinations = append(r.side.Destinations, d)
}

// otherSubscription returns the reason for a meter that another subscription of the customer bills.
func otherSubscription(detail string, subscriptions ...any) billing.ExclusionReason {
	return billing.ExclusionReason{Code: billing.ExcludedOtherSubscription, Detail: fmt.Sprintf(detail, subscriptions...)}
}

// addToOther adds the destination to the state of the item's subscription in side.Others. The billing periods of
// this subscription differ from the customer's.
func (r *router) addToOther(i Item, d billing.Destination) {
	n := slices.IndexFunc(r.side.Others, func(s billing.Side) bool { return s.Subscription == i.SubscriptionID })
	if n < 0 {
		n = len(r.side.Others)
		r.side.Others = append(r.side.Others, i.side(r.Customer))
	}
	r.side.Others[n].Destinations = append(r.side.Others[n].Destinations, d)
}

func (i Item) period() metering.Range { return metering.Range{Start: i.PeriodStart, End: i.PeriodEnd} }

// side returns the customer's state at the item's subscription.
func (i Item) side(customer string) billing.Side {
	return billing.Side{Customer: customer, Subscription: i.SubscriptionID, Period: i.period(), Trial: i.Trial, Ended: i.Ended, Currency: i.Currency}
}

// Keys of billing.Destination.Address in the destinations of quantities.
const (
	itemKey      = "item_id"
	eventKey     = "event_name"
	payloadKey   = "customer_key"
	payloadValue = "value_key"
)

// destination returns the destination of the meter's usage at the item.
func (i Item) destination(meter metering.MeterID) billing.Destination {
	method, _ := i.Method()
	d := billing.Destination{MeterID: meter, Target: i.target(), Method: method, Counting: CountingOf(method), Address: map[string]string{itemKey: i.ItemID}}
	for key, value := range map[string]string{eventKey: i.MeterEventName, payloadKey: i.CustomerKey, payloadValue: i.ValueKey} {
		if value != "" {
			d.Address[key] = value
		}
	}
	switch method {
	case UsageRecord:
		d.WholeUnits, d.NotNegative, d.OnlyWhileRun = true, true, true
	case MeterWindow:
		d.NotNegative, d.Window = true, metering.Granularity(i.EventTimeWindow)
	}
	return d
}

// call is a call that sends usage or a charge to Stripe, as Frame encodes it and the ledger stores it.
type call struct {
	Method      billing.Method   `json:"method"`
	Target      string           `json:"target"`
	ItemID      string           `json:"item_id,omitempty"`
	EventName   string           `json:"event_name,omitempty"`
	CustomerKey string           `json:"customer_key,omitempty"`
	ValueKey    string           `json:"value_key,omitempty"`
	Customer    string           `json:"customer"`
	Quantity    metering.Decimal `json:"quantity"` // units; for an invoice item, money
	Timestamp   time.Time        `json:"timestamp"`

	// Only for an invoice item. Target is then the subscription.
	Currency    string      `json:"currency,omitempty"`
	Description string      `json:"description,omitempty"`
	Period      *chargedFor `json:"period,omitempty"` // period of the charged usage
	About       *About      `json:"about,omitempty"`

	// Only for an invoice item that is updated repeatedly.
	Line        string `json:"line,omitempty"` // key of the invoice line
	Product     string `json:"product,omitempty"`
	TaxBehavior string `json:"tax_behavior,omitempty"`
	TaxCode     string `json:"tax_code,omitempty"`

	Own *OwnInvoice `json:"own,omitempty"` // standalone invoice of the item; nil: the subscription's next invoice
}

// chargedFor is the stored form of a period.
type chargedFor struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// Frame encodes the call that sends a quantity or a charge, or that finalizes a standalone invoice.
func (Provider) Frame(m billing.Message) (billing.Framed, error) {
	if m.Kind == billing.ActionReport {
		return frameOwn(m)
	}
	c := call{Method: m.Method, Target: m.Target, Customer: m.Customer, Quantity: m.Quantity}
	if m.Kind == billing.ChargeReport {
		c.Method, c.Timestamp, c.Currency, c.Period = InvoiceItem, m.Now, m.Currency, &chargedFor{m.Of.Start, m.Of.End}
		c.Description = billing.Description(m.Meter, m.Of, m.Timezone, m.Late)
		c.About = &About{m.Meter.ID, m.Of.Start, m.Window.Start, m.Lines[0].Quantity, m.Late}
		if at := m.Destination.Address; m.Method == PendingItem {
			c.Method, c.Line, c.Product, c.TaxBehavior, c.TaxCode = PendingItem, lineKeyOf(m), at[productKey], at[taxBehaviorKey], at[taxCodeKey]
		}
		if m.Target == billing.OwnInvoiceOf(m.Stream) {
			c.Own = ownOf(m)
		}
	} else {
		var last time.Time
		if m.Former != nil {
			last = *m.Former
		}
		at := m.Destination.Address
		c.ItemID, c.EventName, c.CustomerKey, c.ValueKey = at[itemKey], at[eventKey], at[payloadKey], at[payloadValue]
		c.Timestamp = Timestamp(m.Method, m.Now, last, m.Window)
	}
	body, err := json.Marshal(c)
	if err != nil {
		return billing.Framed{}, fmt.Errorf("encode call: %w", err)
	}
	return billing.Framed{Body: body, Timestamp: c.Timestamp}, nil
}

// Send makes one attempt at the stored call.
func (p Provider) Send(ctx context.Context, c providers.Credentials, s providers.Sending) providers.Outcome {
	switch {
	case s.Kind == billing.ActionReport:
		return p.sendAction(ctx, c, s)
	case s.Method == PendingItem:
		return p.setLine(ctx, c, s)
	}
	r, err := reportOf(s)
	if err != nil {
		return providers.Outcome{Err: err}
	}
	answer, err := p.client.Send(ctx, c.Secret, r)
	adds := s.Counting == billing.Adds
	overdue := s.Invoiced && s.Kind == billing.QuantityReport && !answer.Replayed && s.Now.Sub(s.FirstSentAt) <= rememberedFor
	switch {
	case err == nil && answer.Duplicate:
		return providers.Outcome{State: billing.Accepted, Answer: "Stripe had already received the report"}
	case err == nil && overdue:
		return providers.Outcome{State: billing.Rejected, Answer: "Stripe accepted the usage after the invoice was final, so no invoice bills it; the next period bills it"}
	case err == nil:
		return providers.Outcome{State: billing.Accepted, Answer: fmt.Sprintf("Stripe answered %d", answer.Status)}
	}
	saved := answer.Replayed && answer.Status >= http.StatusInternalServerError
	return providers.Outcome{Err: advised(err), Look: saved && adds, NewKey: saved && (!adds || s.Kind == billing.ChargeReport)}
}

// callOf decodes the stored call of a report.
func callOf(s providers.Sending) (c call, err error) {
	if err := json.Unmarshal(s.Body, &c); err != nil {
		return c, fmt.Errorf("read call: %w", err)
	}
	return c, nil
}

// reportOf decodes the stored call of a quantity or of an invoice item that is added once.
func reportOf(s providers.Sending) (Report, error) {
	c, err := callOf(s)
	if err != nil {
		return Report{}, err
	}
	id := s.ReportID.String()
	r := Report{
		Method: c.Method, ItemID: c.ItemID, EventName: c.EventName, CustomerKey: c.CustomerKey, ValueKey: c.ValueKey,
		Customer: c.Customer, Value: c.Quantity, Timestamp: c.Timestamp, Identifier: id, IdempotencyKey: fmt.Sprintf("%s.%d", id, s.Revision),
	}
	if c.Method == InvoiceItem {
		r.SubscriptionID, r.Currency, r.Description, r.Period, r.About = c.Target, c.Currency, c.Description, metering.Range(*c.Period), c.About
		r.Value = Smallest(c.Quantity, c.Currency)
	}
	return r, nil
}

// Find checks whether Stripe has the report. The list of invoice items gives a definite answer. Usage
// summaries can only confirm a report, because Stripe does not document their maximum delay.
func (p Provider) Find(ctx context.Context, c providers.Credentials, s providers.Sending, at providers.Place, before metering.Decimal) (providers.Found, error) {
	switch {
	case s.Kind == billing.ActionReport:
		return p.findAction(ctx, c, s)
	case s.Method == PendingItem:
		return p.findLineReport(ctx, c, s)
	}
	r, err := reportOf(s)
	if err != nil {
		return providers.Found{}, err
	}
	if s.Kind == billing.ChargeReport {
		found, err := p.client.InvoiceItem(ctx, c.Secret, r.Customer, r.Identifier, s.FirstSentAt)
		if err != nil || !found {
			return providers.Found{}, advised(err)
		}
		return providers.Found{State: billing.Accepted, Answer: "found among the customer's invoice items"}, nil
	}
	counted, err := p.Count(ctx, c, at)
	with := before.Add(r.Value)
	switch {
	case err != nil:
		return providers.Found{}, err
	case counted.Equal(with):
		return providers.Found{State: billing.Accepted, Answer: "found in the usage that Stripe has counted"}, nil
	case counted.Equal(before):
		return providers.Found{State: billing.InDoubt, Answer: fmt.Sprintf("the report may have arrived: Stripe has counted %s, and its summaries may be delayed", counted)}, nil
	}
	return providers.Found{State: billing.InDoubt, Answer: fmt.Sprintf(
		"the report may have arrived: Stripe has counted %s, but %s or %s was expected; check whether another system reports to the same meter",
		counted, before, with)}, nil
}

// Count reads the usage that Stripe has counted from Stripe's summaries.
func (p Provider) Count(ctx context.Context, c providers.Credentials, at providers.Place) (counted metering.Decimal, err error) {
	if at.Method == UsageRecord {
		counted, err = p.client.RecordSummary(ctx, c.Secret, at.Target, RecordTime(at.Range.Start))
	} else {
		counted, err = p.client.Summary(ctx, c.Secret, at.Target, at.Customer, at.Range.Start, at.Range.End)
	}
	return counted, advised(err)
}
