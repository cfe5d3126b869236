package main

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	temporal "go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/dev/receiver"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// drill is a complete test system: processes, the fake of Stripe, three tenants, and a clock that all of
// them read.
type drill struct {
	proc.Drill
	clock     *proc.Clock
	fake      *stripetest.Fake
	stripeURL string
	hooksURL  string    // where the tenants' webhooks are received
	conn      *pgx.Conn // to count unfinished work
	temporal  temporal.Client
	system    *proc.System
	api       *proc.Process
	worker    *proc.Process
	sent      int // the number of events

	main    *tenant // bills in live mode from the beginning
	testing *tenant // begins with a test key
	amounts *tenant // bills amounts
	months  [3]time.Time
}

// newDrill starts the servers, the processes and the clock, and creates the tenants.
func newDrill(t testing.TB, out io.Writer) *drill {
	t.Helper()
	d := &drill{Drill: proc.Drill{TB: t, Out: out}, clock: proc.NewClock(t)}
	d.fake = stripetest.New(stripetest.Options{Now: d.clock.Now})
	d.stripeURL, d.hooksURL = proc.Serve(t, d.fake), proc.Serve(t, receiver.New(receiver.Secret))
	d.system = proc.Fresh(t, proc.Config{Clock: d.clock, Env: []string{"STRIPE_API_BASE=" + d.stripeURL}})
	d.temporal = d.system.Temporal(t)
	d.conn = d.system.Conn(t)
	d.begin()
	return d
}

// begin sets the clock to the first hour of a month, starts the processes and creates the tenants.
func (d *drill) begin() {
	now := time.Now().UTC()
	for n := range d.months {
		d.months[n] = time.Date(now.Year(), now.Month()+time.Month(1+n), 1, 0, 0, 0, 0, time.UTC)
	}
	d.clock.To(d, d.months[0].Add(time.Hour))
	d.api, d.worker = d.system.API(d), d.system.Worker(d)
	d.main = d.newTenant("live", customers)
	d.testing = d.newTenant("test", []customer{afterTest})
	d.amounts = d.newTenant("live", inAmounts)
}

// tenants returns all tenants.
func (d *drill) tenants() []*tenant { return []*tenant{d.main, d.testing, d.amounts} }

// tenantOf returns the tenant of a customer.
func (d *drill) tenantOf(c customer) *tenant {
	d.Helper()
	all := d.tenants()
	i := slices.IndexFunc(all, func(t *tenant) bool { return c.oneOf(t.customers...) })
	require.GreaterOrEqual(d, i, 0, c.kind)
	return all[i]
}

// advanceTo advances the clock to an instant and delivers the Stripe events that result.
func (d *drill) advanceTo(at time.Time) {
	d.Helper()
	d.clock.To(d, at)
	d.settle()
}

// settle delivers Stripe's events and waits until all events and syncs are finished.
func (d *drill) settle() {
	d.Helper()
	for _, t := range d.tenants() {
		d.deliver(t)
	}
	d.await()
}

// deliver delivers the Stripe events that Odometer has not answered yet, the oldest first.
func (d *drill) deliver(t *tenant) {
	d.Helper()
	for _, event := range d.fake.Happened(t.account.ID, "") {
		if t.delivered[event] {
			continue
		}
		var status int
		dbtest.Eventually(d, func() (err error) {
			status, err = d.fake.Deliver(d.Context(), stripetest.Webhook{Event: event})
			if err == nil && status >= http.StatusInternalServerError {
				err = fmt.Errorf("the event is answered with %d", status)
			}
			return err
		})
		t.delivered[event] = true
	}
}

// await waits until every Stripe event is handled and every sync is finished.
func (d *drill) await() {
	d.Helper()
	dbtest.Eventually(d, func() error {
		var events, syncs int
		err := d.conn.QueryRow(d.Context(), `
			select (select count(*) from provider_events where handled_at is null),
			  (select count(*) from billing_syncs where finished_at is null)`).Scan(&events, &syncs)
		if err == nil && events+syncs > 0 {
			err = fmt.Errorf("%d events and %d syncs are under way", events, syncs)
		}
		return err
	})
}
