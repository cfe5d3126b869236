package main

import (
	"slices"
	"time"

	"github.com/odometer-metering/odometer/providers/stripetest"
)

// customer is a customer of a tenant, with its subscriptions at Stripe.
type customer struct {
	kind          string // name of the customer in Odometer and in the tables
	id            string
	subscriptions [][]string // the meters of each subscription
	unsubscribed  []string   // meters without a subscription
}

// atStripe returns the id of the customer at Stripe.
func (c customer) atStripe() string { return "cus_" + c.id }

// subscription returns the id of the n-th subscription. item returns the id of a meter's subscription item.
func (c customer) subscription(n int) string { return "sub_" + c.id + []string{"", "_second"}[n] }
func (c customer) item(meter string) string  { return "si_" + c.id + "_" + meter }

// meters returns all meters of the customer, with and without a subscription.
func (c customer) meters() []string {
	return slices.Concat(slices.Concat(c.subscriptions...), c.unsubscribed)
}

// endsLater reports whether the customer's periods end later than those of the other customers, by laterBy.
func (c customer) endsLater() bool { return c.id == away.id }

// oneOf reports whether the customer is in the list.
func (c customer) oneOf(all ...customer) bool {
	return slices.ContainsFunc(all, func(o customer) bool { return o.id == c.id })
}

// meters are the slugs of the meters, named after the way in which Stripe counts them. calls are summed,
// records are usage records, hours have hourly totals, and seats keep the last value. The summaries of slow are
// delayed.
var meters = []string{"calls", "records", "hours", "seats", "slow"}

// withOneSubscription returns a customer with one subscription to the meters, or to calls if there are none.
func withOneSubscription(kind, id string, meters ...string) customer {
	if len(meters) == 0 {
		meters = []string{"calls"}
	}
	return customer{kind: kind, id: id, subscriptions: [][]string{meters}}
}

// The customers, named after the case that each of them tests.
var (
	plain     = withOneSubscription("renewal", "plain", "calls", "records", "hours", "seats")
	twice     = customer{kind: "two subscriptions", id: "twice", subscriptions: [][]string{{"calls"}, {"hours"}}}
	apart     = customer{kind: "two subscriptions, other periods", id: "apart", subscriptions: [][]string{{"calls"}, {"hours"}}}
	ending    = withOneSubscription("canceled at the period's end", "ending")
	ended     = withOneSubscription("canceled at once", "ended")
	cutOff    = withOneSubscription("canceled at once, no invoice", "cut-off")
	classic   = withOneSubscription("price swapped, classic", "classic")
	flexible  = withOneSubscription("price swapped, flexible", "flexible")
	trying    = withOneSubscription("trial", "trying")
	away      = withOneSubscription("API away at finalization", "away")
	slow      = withOneSubscription("summaries a day behind", "slow", "slow")
	paused    = withOneSubscription("collection paused as void", "paused")
	kept      = withOneSubscription("collection paused as draft", "kept")
	voided    = withOneSubscription("invoice voided", "voided")
	raised    = withOneSubscription("line raised by hand", "raised")
	lowered   = withOneSubscription("line lowered by hand", "lowered")
	shared    = withOneSubscription("another reporter on the meter", "shared")
	late      = withOneSubscription("usage after the closing", "late")
	afterTest = withOneSubscription("live after test", "after-test")

	amounts        = withOneSubscription("amounts: renewal", "amounts")
	amountsEnding  = withOneSubscription("amounts: canceled at the end", "amounts-ending")
	amountsSwapped = withOneSubscription("amounts: price swapped", "amounts-swapped")
	amountsLate    = withOneSubscription("amounts: usage after the closing", "amounts-late")
	amountsOwn     = customer{kind: "amounts: no subscription", id: "amounts-own", unsubscribed: []string{"calls", "seats"}}
)

// customers are the customers of the tenant main, which bills quantities.
var customers = []customer{
	plain, twice, apart, ending, ended, cutOff, classic, flexible, trying, away, slow, paused, kept, voided, raised, lowered, shared, late,
}

// inAmounts are the customers of the tenant that bills amounts.
var inAmounts = []customer{amounts, amountsEnding, amountsSwapped, amountsLate, amountsOwn}

// laterBy is the delay of the billing periods of the customer away. They end half a day after all other
// periods, so that the outage affects no other customer.
const laterBy = 12 * time.Hour

// apartBy is the time from the start of a billing period of apart's second subscription to the start of the
// next month.
const apartBy = 12 * day

// product is the id of the Stripe product for invoice lines that bill amounts.
const product = "prod_usage"

// seed returns a tenant's account at Stripe. It has a price of 2 cents for each meter, a second price for
// swaps, and the customers with their subscriptions of the first month.
func seed(account stripetest.Account, customers []customer, start, end time.Time) stripetest.Seed {
	s := stripetest.Seed{
		Account: account,
		Meters: []stripetest.Meter{
			{ID: "mtr_calls", EventName: "calls"}, {ID: "mtr_hours", EventName: "hours", EventTimeWindow: "hour"},
			{ID: "mtr_seats", EventName: "seats", Formula: "last"}, {ID: "mtr_slow", EventName: "slow"},
		},
		Products: []stripetest.Product{{ID: product}},
		Prices:   []stripetest.Price{{ID: "price_next", UnitAmount: "2", Meter: "mtr_calls", Metadata: map[string]string{"meter_slug": "calls"}}},
	}
	for _, slug := range meters {
		price := stripetest.Price{ID: "price_" + slug, LookupKey: slug, UnitAmount: "2", Meter: "mtr_" + slug}
		if slug == "records" {
			price.Meter = ""
		}
		s.Prices = append(s.Prices, price)
	}
	for _, c := range customers {
		s.Customers = append(s.Customers, stripetest.Customer{ID: c.atStripe()})
		s.Subscriptions = append(s.Subscriptions, c.subscribed(start, end)...)
	}
	return s
}

// subscribed returns the customer's subscriptions in the first month.
func (c customer) subscribed(start, end time.Time) (all []stripetest.Subscription) {
	if c.endsLater() {
		start, end = start.Add(laterBy), end.Add(laterBy)
	}
	for n, meters := range c.subscriptions {
		s := stripetest.Subscription{ID: c.subscription(n), Customer: c.atStripe(), Start: start.Unix(), End: end.Unix()}
		if c.id == apart.id && n > 0 {
			s.Start, s.End = start.Add(-apartBy).Unix(), start.AddDate(0, 1, 0).Add(-apartBy).Unix()
		}
		for _, slug := range meters {
			s.Items = append(s.Items, stripetest.Item{ID: c.item(slug), Price: "price_" + slug})
		}
		switch c.id {
		case flexible.id:
			s.BillingMode = "flexible"
		case trying.id:
			s.TrialEnd = end.Unix()
		}
		all = append(all, s)
	}
	return all
}
