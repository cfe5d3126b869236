package stripe_test

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/stripe"
)

// TestStripeKeepsItsContractAsAssumed checks the assumptions in docs/stripe.md that a test mode key can
// check. Each check has its own customer and test clock, so that a false assumption does not hide another
// one.
func TestStripeKeepsItsContractAsAssumed(t *testing.T) {
	t.Parallel()
	for name, try := range map[string]func(*contract){
		"a draft accepts usage until it is final":                        (*contract).tryDraft,
		"two items on one meter are both billed":                         (*contract).tryTwoItems,
		"a canceled subscription's last invoice is a draft":              (*contract).tryCanceled,
		"a price change bills no earlier usage":                          (*contract).trySwap,
		"a price change in flexible mode bills usage reported before it": (*contract).tryFlexibleSwap,
		"usage in a trial is never billed":                               (*contract).tryTrial,
		"a window around a period's start is billed in that period":      (*contract).tryCutWindow,
		"of two totals with equal timestamps the later one is billed":    (*contract).tryEqualTimes,
		"a held draft is finalized when it is released":                  (*contract).tryHold,
		"a held draft is finalized at its deadline":                      (*contract).tryDeadline,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := contractWith(t)
			c.makeCustomer()
			try(c)
		})
	}
}

// begin creates a subscription of the customer to the prices, advances the test clock to ten minutes after the start,
// and reads the subscription items.
func (c *contract) begin(prices []string, form ...string) {
	c.createSubscription(prices, form...)
	c.advance(c.start.Add(10 * time.Minute))
	items, err := c.client.Items(c.Context(), c.key, c.customer)
	require.NoError(c, err)
	c.items = map[string]stripe.Item{}
	for _, item := range items {
		c.items[item.LookupKey] = item
		c.period = metering.Range{Start: item.PeriodStart, End: item.PeriodEnd}
	}
	c.items["calls"] = c.items[c.name("calls")]
}

// sumMeter creates a Stripe meter that sums the events of calls, and returns its id.
func (c *contract) sumMeter(form ...string) string {
	return c.meter("calls", append(form, "default_aggregation[formula]", "sum")...)
}

// calls creates a price for a new meter of calls, and returns the prices of a subscription with that price only.
func (c *contract) calls() []string { return []string{c.price("calls", "3", c.sumMeter())} }

// use reports usage of the meter calls at a time, and waits until the total that Stripe has counted equals
// counted.
func (c *contract) use(version int, value int64, at time.Time, counted string) {
	c.Helper()
	_, err := c.send(c.report("calls", version, value, at))
	require.NoError(c, err)
	c.eventually(func() error { return c.counted("calls", counted) })
}

// renewal returns the customer's newest renewal invoice. It waits until the invoice is a draft or, if the parameter
// draft is false, until it is final.
func (c *contract) renewal(draft bool) (in stripe.Invoice) {
	c.Helper()
	c.eventually(func() error {
		in = stripe.Invoice{}
		made, err := c.call(http.MethodGet, "/v1/invoices?limit=100&customer="+c.customer)
		if err != nil {
			return err
		}
		for _, object := range made["data"].([]any) { // newest first
			if object := object.(map[string]any); in.ID == "" && object["billing_reason"] == "subscription_cycle" {
				in, err = c.client.Invoice(c.Context(), c.key, object["id"].(string))
			}
		}
		if err == nil && (in.ID == "" || in.FinalizedAt.IsZero() != draft) {
			err = fmt.Errorf("%q, the invoice of %s's period, is %q", in.ID, c.customer, in.Status)
		}
		return err
	})
	return in
}

// billed returns the total quantity of an item's lines on an invoice.
func billed(in stripe.Invoice, item string) (quantity metering.Decimal) {
	for _, line := range in.Lines {
		if line.ItemID == item {
			quantity = quantity.Add(line.Quantity)
		}
	}
	return quantity
}

// tryDraft checks that the draft of a period accepts usage, changes of its items, and a later finalization
// time. A charge that is created after the draft is not on it.
func (c *contract) tryDraft() {
	c.begin(c.calls())
	c.use(1, 4, c.start.Add(3*time.Minute), "4")
	pending := c.late(1, 250)
	_, err := c.send(pending)
	require.NoError(c, err)
	c.advance(c.period.End.Add(20 * time.Minute))
	draft := c.renewal(true)

	item, err := c.call(http.MethodGet, "/v1/invoiceitems?customer="+c.customer)
	require.NoError(c, err)
	path := "/v1/invoiceitems/" + item["data"].([]any)[0].(map[string]any)["id"].(string)
	_, err = c.call(http.MethodPost, path, "amount", "240")
	require.NoError(c, err, "a draft's item can be changed")
	c.use(2, 5, c.start.Add(4*time.Minute), "9")
	_, err = c.send(c.late(2, 70))
	require.NoError(c, err)
	c.version = "2024-10-28.acacia"
	_, err = c.call(http.MethodPost, "/v1/invoices/"+draft.ID, "automatically_finalizes_at", unix(c.period.End.Add(3*time.Hour)))
	require.NoError(c, err)
	c.advance(c.period.End.Add(2 * time.Hour))
	require.Equal(c, draft.ID, c.renewal(true).ID, "it waits for its time")

	c.advance(c.period.End.Add(4 * time.Hour))
	final := c.renewal(false)
	require.Equal(c, draft.ID, final.ID)
	requireDecimal(c, "9", billed(final, c.items["calls"].ItemID))
	requireDecimal(c, "2.67", final.Total, "9 × 3 + 240 cents: what came for the draft waits for the next")
	_, err = c.call(http.MethodPost, path, "amount", "230")
	require.Error(c, err, "a final invoice's item cannot be changed")
}

// tryTwoItems checks that Stripe bills the usage of a meter once for each of two prices of the meter.
func (c *contract) tryTwoItems() {
	meter := c.sumMeter()
	c.begin([]string{c.price("calls", "3", meter), c.price("again", "2", meter)})
	c.use(1, 4, c.start.Add(3*time.Minute), "4")
	c.advance(c.period.End.Add(2 * time.Hour))
	final := c.renewal(false)
	for _, what := range []string{"calls", "again"} {
		requireDecimal(c, "4", billed(final, c.items[c.name(what)].ItemID), what)
	}
}

// tryCanceled checks that the last invoice of a subscription canceled at its period's end is a draft, which accepts
// usage and no charge.
func (c *contract) tryCanceled() {
	c.begin(c.calls(), "cancel_at_period_end", "true")
	c.use(1, 4, c.start.Add(3*time.Minute), "4")
	c.advance(c.period.End.Add(20 * time.Minute))
	c.renewal(true)
	_, err := c.send(c.late(1, 250))
	require.ErrorContains(c, err, "has ended")
	c.use(2, 5, c.start.Add(4*time.Minute), "9")
	c.advance(c.period.End.Add(2 * time.Hour))
	requireDecimal(c, "9", billed(c.renewal(false), c.items["calls"].ItemID))
}

// swap reports usage, changes the price of calls, and reports usage from before and after the change. It
// returns the id of the item.
func (c *contract) swap(form ...string) (item string) {
	c.begin(c.calls(), form...)
	c.use(1, 4, c.start.Add(3*time.Minute), "4")
	item = c.items["calls"].ItemID
	better := c.price("better", "1", c.items["calls"].MeterID)
	_, err := c.call(http.MethodPost, "/v1/subscription_items/"+item, "price", better)
	require.NoError(c, err)
	c.advance(c.start.Add(time.Hour))
	c.use(2, 5, c.start.Add(4*time.Minute), "9")
	c.use(3, 7, c.start.Add(30*time.Minute), "16")
	c.advance(c.period.End.Add(2 * time.Hour))
	return item
}

// trySwap checks that a price change in classic mode bills only the usage after the change.
func (c *contract) trySwap() {
	item := c.swap()
	final := c.renewal(false)
	requireDecimal(c, "7", billed(final, item))
	requireDecimal(c, "0.07", final.Total)
}

// tryFlexibleSwap checks that usage reported before the change is billed in flexible mode. Usage from
// before the change that is reported later is not billed.
func (c *contract) tryFlexibleSwap() {
	c.version = "2025-09-30.clover"
	c.swap("billing_mode[type]", "flexible")
	requireDecimal(c, "0.19", c.renewal(false).Total, "4 × 3 + 7 × 1 cents")
}

// tryTrial checks that the invoice of a trial costs nothing.
func (c *contract) tryTrial() {
	c.begin(c.calls(), "trial_end", unix(c.start.Add(48*time.Hour)))
	c.use(1, 4, c.start.Add(3*time.Minute), "4")
	c.advance(c.start.Add(50 * time.Hour))
	requireDecimal(c, "0", c.renewal(false).Total)
}

// tryCutWindow checks that usage at the start of a period is billed in that period if the period begins in the middle
// of an hourly window.
func (c *contract) tryCutWindow() {
	c.start = c.start.Add(30 * time.Minute)
	c.advance(c.start)
	c.begin([]string{c.price("calls", "3", c.sumMeter("event_time_window", "hour"))})
	c.use(1, 4, c.start, "4")
	c.advance(c.period.End.Add(2 * time.Hour))
	requireDecimal(c, "4", billed(c.renewal(false), c.items["calls"].ItemID))
}

// tryEqualTimes checks that Stripe bills the later of two totals with the same timestamp. Reports that are sent
// after the period's last second have equal timestamps.
func (c *contract) tryEqualTimes() {
	c.begin([]string{c.price("calls", "3", c.meter("calls", "default_aggregation[formula]", "last"))})
	at := c.start.Add(3 * time.Minute)
	c.use(1, 9, at, "9")
	c.use(2, 4, at, "4")
	c.advance(c.period.End.Add(2 * time.Hour))
	requireDecimal(c, "4", billed(c.renewal(false), c.items["calls"].ItemID))
}

// heldDraft is the draft of the customer's renewal, held until the deadline.
type heldDraft struct {
	*contract
	stripe.Provider
	id       string
	deadline time.Time
}

// hold creates the draft of a renewal with usage and a charge. It holds the draft until the period's end
// plus long.
func (c *contract) hold(long time.Duration) heldDraft {
	c.begin(c.calls())
	c.use(1, 4, c.start.Add(3*time.Minute), "4")
	_, err := c.send(c.late(1, 250))
	require.NoError(c, err)
	c.advance(c.period.End.Add(20 * time.Minute))
	d := heldDraft{c, stripe.NewProvider(c.client), c.renewal(true).ID, c.period.End.Add(long)}
	require.True(c, d.draft().Automatic)
	d.act(d.FrameHold(d.id, d.deadline))
	d.act(d.FrameHold(d.id, d.deadline))
	return d
}

// draft reads the held draft.
func (d heldDraft) draft() billing.Draft {
	d.Helper()
	draft, err := d.Draft(d.Context(), providers.Credentials{Secret: d.key}, providers.InvoiceQuestion{ID: d.id})
	require.NoError(d, err)
	return draft
}

// act sends a framed hold or release, and repeats it until Send returns no error.
func (d heldDraft) act(framed billing.Framed, err error) {
	d.Helper()
	require.NoError(d, err)
	s := providers.Sending{Series: billing.Series{Kind: billing.ActionReport}, ReportID: uuid.New(), Body: framed.Body, Now: time.Now()}
	d.eventually(func() error { return d.Provider.Send(d.Context(), providers.Credentials{Secret: d.key}, s).Err })
}

// tryHold checks that a held draft is not finalized before its deadline. It changes the draft's item and metadata, and
// checks that Draft shows these changes and that a release finalizes the draft.
func (c *contract) tryHold() {
	d := c.hold(5 * 24 * time.Hour)
	c.advance(c.period.End.Add(3 * time.Hour))
	held := d.draft()
	require.Zero(c, held.FinalizedAt, "it waits")
	require.Equal(c, d.deadline, held.FinalizesAt)

	item, err := c.call(http.MethodGet, "/v1/invoiceitems?customer="+c.customer)
	require.NoError(c, err)
	_, err = c.call(http.MethodPost, "/v1/invoiceitems/"+item["data"].([]any)[0].(map[string]any)["id"].(string), "amount", "240")
	require.NoError(c, err)
	set := d.draft()
	require.Equal(c, held.Settings, set.Settings)
	ids := func(d billing.Draft) (ids []string) {
		for _, l := range d.Lines {
			ids = append(ids, l.ID)
		}
		return ids
	}
	require.Equal(c, ids(held), ids(set), "a line keeps its id when its item is set")
	_, err = c.call(http.MethodPost, "/v1/invoices/"+d.id, "metadata[changed_by]", "somebody")
	require.NoError(c, err)
	require.NotEqual(c, held.Settings, d.draft().Settings, "what people change shows")

	d.act(d.FrameRelease(d.id))
	require.NotZero(c, d.draft().FinalizedAt)
	requireDecimal(c, "2.52", c.renewal(false).Total, "4 × 3 + 240 cents")
}

// tryDeadline checks that Stripe finalizes a held draft at the deadline, and not before.
func (c *contract) tryDeadline() {
	d := c.hold(3 * time.Hour)
	c.advance(c.period.End.Add(2 * time.Hour))
	require.Zero(c, d.draft().FinalizedAt)
	c.advance(c.period.End.Add(4 * time.Hour))
	c.eventually(func() error {
		if d.draft().FinalizedAt.IsZero() {
			return errors.New("the draft is held beyond its deadline")
		}
		return nil
	})
}
