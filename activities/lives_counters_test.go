package activities_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/dev/lives"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// atProvider is the customer's ID at every counter.
const atProvider = "cus_1"

// accountOf returns the account of an action's connection at the fake.
func accountOf(a lives.Action) stripetest.Account {
	return stripetest.Account{ID: fmt.Sprintf("acct_%d", a.Connection), Key: fmt.Sprintf("sk_test_%d", a.Connection), Decimals: true, KeepDrafts: true}
}

// connectCounter connects an account of the fake.
func (l *life) connectCounter(a lives.Action) {
	sealed, err := l.keyring.Seal(l.tenant, seal.ProviderSecret, []byte(accountOf(a).Key))
	require.NoError(l, err)
	_, err = l.store.Providers.Save(l.Context(), l.tenant, metering.Operator, metering.Provider{
		Kind: metering.Stripe, Invoices: true, Account: accountOf(a).ID, SealedSecret: sealed, ValidatedAt: l.now,
	})
	require.NoError(l, err)
}

// subscribe begins a subscription of the customer with an item for each meter that the life will have. The IDs of its
// objects differ between accounts, as at Stripe.
func (l *life) subscribe(a lives.Action) {
	named := func(kind string, meter metering.MeterID) string {
		return fmt.Sprintf("%s_%d_%d", kind, a.Connection, meter)
	}
	l.subscription = fmt.Sprintf("sub_%d_%d", a.Connection, l.done)
	seed := &stripetest.Seed{Account: accountOf(a), Customers: []stripetest.Customer{{ID: atProvider}}}
	subscription := stripetest.Subscription{ID: l.subscription, Customer: atProvider, Start: l.now.Unix(), End: a.Time.Unix()}
	if a.Trial {
		subscription.TrialEnd = subscription.End
	}
	for _, place := range a.Places {
		tariff := place.Price
		price := stripetest.Price{
			ID: named("price", place.Meter) + a.Currency, LookupKey: slug(place.Meter), Currency: strings.ToLower(a.Currency), TiersMode: "graduated",
			Tiers: []stripetest.Tier{
				{UpTo: tariff.UpTo.String(), UnitAmount: tariff.First.String(), FlatAmount: tariff.Flat.String()}, {UpTo: "inf", UnitAmount: tariff.Rest.String()},
			},
		}
		if place.Method != "record" {
			price.Meter = named("mtr", place.Meter)
			meter := stripetest.Meter{ID: price.Meter, EventName: slug(place.Meter), EventTimeWindow: string(place.Window)}
			if place.Method == "last" {
				meter.Formula = "last"
			}
			seed.Meters = append(seed.Meters, meter)
		}
		seed.Prices = append(seed.Prices, price)
		item := fmt.Sprintf("si_%d_%d_%d", a.Connection, place.Meter, l.done)
		subscription.Items = append(subscription.Items, stripetest.Item{ID: item, Price: price.ID})
	}
	seed.Subscriptions = []stripetest.Subscription{subscription}
	require.NoError(l, l.fake.Seed(seed))
}

// cancel ends the customer's subscription immediately.
func (l *life) cancel(a lives.Action) {
	l.calls(a, http.MethodDelete, "/v1/subscriptions/"+l.subscription)
}

// calls sends a request to the fake that does not come from Odometer.
func (l *life) calls(a lives.Action, method, path string) {
	l.Helper()
	request, err := http.NewRequestWithContext(l.Context(), method, l.stripeAt.URL+path, http.NoBody)
	require.NoError(l, err)
	request.Header.Set("Authorization", "Bearer "+accountOf(a).Key)
	response, err := http.DefaultClient.Do(request)
	require.NoError(l, err)
	require.NoError(l, response.Body.Close())
	require.Equal(l, http.StatusOK, response.StatusCode)
}

// link links the customer to a customer at the provider; nil: to none.
func (l *life) link(customer *string) {
	_, _, err := l.store.Customers.Upsert(l.Context(), l.tenant, metering.Operator, "a customer", catalog.CustomerChange{Link: true, BillingProviderID: customer}, l.now)
	require.NoError(l, err)
}

// invoice finalizes the invoice of the period that ended at a.Time, and handles the event of the fake.
func (l *life) invoice(a lives.Action) {
	account := accountOf(a).ID
	state := l.fake.State()
	at := slices.IndexFunc(state.Accounts, func(s stripetest.AccountState) bool { return s.ID == account })
	in := slices.IndexFunc(state.Accounts[at].Invoices, func(i stripetest.InvoiceState) bool { return i.PeriodEnd.Equal(*a.Time) })
	require.GreaterOrEqual(l, in, 0, "no invoice of %s ends at %s", account, a.Time)
	id := state.Accounts[at].Invoices[in].ID
	l.calls(a, http.MethodPost, "/v1/invoices/"+id+"/finalize")
	provider, err := l.store.Providers.Active(l.Context(), l.tenant)
	require.NoError(l, err)
	kept, _, err := l.store.ProviderEvents.Store(l.Context(), l.tenant, metering.ProviderEvent{
		Connection: provider.ID, EventID: "evt_" + id, Kind: "invoice.finalized", Invoice: true, ObjectID: id, Customer: atProvider, MadeAt: l.now,
	}, l.now)
	require.NoError(l, err)
	do := l.activities(l.store, nil)
	var read activities.ReadInvoiceResult
	l.run(do, do.ReadInvoice, activities.ProviderEventInput{TenantID: l.tenant, RowID: kept.Row}, &read)
	require.True(l, read.Final, "invoice %s", id)
}

// leaseTime equals the lease of the activities.
const leaseTime = 30 * time.Second

// leaseAtOnce selects the report that callAtOnce leases and sends. It leases the report itself if the lease must fail
// or the worker stops next.
func (p *pass) leaseAtOnce(a lives.Action) {
	p.Helper()
	p.sending = p.report(a.Report)
	if !a.Busy && !p.diesNow() {
		return
	}
	_, err := p.store.Ledger.Lease(p.Context(), p.tenant, p.sending, p.now, leaseTime)
	require.Equal(p, a.Busy, err != nil, "report %d at %s: %v", a.Report, p.now, err)
}

// diesNow reports whether the worker stops in the next action.
func (p *pass) diesNow() bool {
	now, next := p.recorded.Actions[p.done-1], p.recorded.Actions[p.done]
	return next.Do == lives.Dies && next.Pass == now.Pass
}

// callAtOnce leases a report, sends it and records the result. A worker that stops next records no result.
func (p *pass) callAtOnce(a lives.Action) {
	p.Helper()
	dies := p.diesNow()
	if dies && a.Fate == lives.NoCall {
		_, err := p.store.Ledger.Lease(p.Context(), p.tenant, p.sending, p.now, leaseTime)
		require.NoError(p, err)
		return
	}
	p.receiver.meets(p.sending.String(), a.Fate)
	p.fake.Behave(behaviourOf(a))
	if dies {
		die := func(r *http.Request) {
			if r.Method == http.MethodPost {
				p.store.Close()
			}
		}
		p.answered.Store(&die)
	}
	do := p.activities(p.store, caller())
	_, err := executing(do).ExecuteActivity(do.SendReport, activities.SendReportInput{TenantID: p.tenant, ReportID: p.sending})
	p.answered.Store(nil)
	p.fake.Behave(stripetest.Behaviour{})
	if dies || a.Fate == lives.AnswerLost || a.Fate == lives.ServerError || a.Fate == lives.SavedError {
		require.Error(p, err, "report %s met %s at %s", p.sending, a.Fate, p.now)
	}
}

// behaviourOf returns the behaviour of the fake for the fate of a call.
func behaviourOf(a lives.Action) stripetest.Behaviour {
	b := stripetest.Behaviour{Times: 1, Path: "/v1/billing/meter_events"}
	switch a.Method {
	case "record":
		b.Path = "/v1/subscription_items/"
	case "charge":
		b.Path = "/v1/invoiceitems"
	}
	switch a.Fate {
	case lives.AnswerLost:
		b.DropAnswer = true
	case lives.ServerError:
		b.Status = http.StatusServiceUnavailable
	case lives.SavedError:
		b.Status, b.Mode, b.Done = http.StatusInternalServerError, stripetest.Saved, true
	case lives.Refused:
		b.Status = http.StatusBadRequest
	case lives.Dropped:
		b.Mode = stripetest.RejectLater
	default:
		return stripetest.Behaviour{}
	}
	return b
}
