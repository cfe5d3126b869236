package activities_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// newBeside is a subscriber with a second subscription, whose periods are others
// and which has a meter of its own, at a cent for each.
func newBeside(t *testing.T) (s *subscriber, second metering.Range) {
	t.Helper()
	s = newRegular(t)
	second = metering.Range{Start: s.first.Start.AddDate(0, 0, -5), End: s.first.End.AddDate(0, 0, 15)}
	require.NoError(t, s.fake.Seed(&stripetest.Seed{
		Account: stripetest.Account{ID: "acct_1", Key: stripeKey},
		Meters:  []stripetest.Meter{{ID: "mtr_seats", EventName: "seats"}},
		Prices:  []stripetest.Price{{ID: "price_seats", LookupKey: "seats", UnitAmount: "1", Meter: "mtr_seats"}},
		Subscriptions: []stripetest.Subscription{{
			ID: "sub_2", Customer: "cus_1", Start: second.Start.Unix(), End: second.End.Unix(), Items: []stripetest.Item{{ID: "si_seats", Price: "price_seats"}},
		}},
	}))
	dbtest.Meter(t, s.store, s.tenant, "seats", "seats")
	return s, second
}

// usedAt sends usage of a time.
func (s *subscriber) usedAt(at time.Time, meter, value string) {
	s.Helper()
	_, err := s.writer.Ingest(s.Context(), s.tenant, []metering.Event{dbtest.Event(s, meter, "acme", metering.Instant(at), value, "", "")})
	require.NoError(s, err)
}

// streams are the customer's periods that the database has, of which each begins
// where the former of its stream ended, with what the meters that have used
// anything closed at.
func (s *subscriber) streams() (all []string) {
	s.Helper()
	rows, err := s.conn.Query(s.Context(), `
		select p.stream || case when p.starts_at <> lag(p.ends_at, 1, p.starts_at) over (partition by p.stream order by p.starts_at) then ' after a gap' else '' end || coalesce((
		  select ': ' || string_agg(m.slug || ' ' || t.usage, ', ' order by m.slug)
		  from billing_period_totals t
		  join meters m on m.tenant_id = t.tenant_id and m.id = t.meter_id
		  where t.tenant_id = p.tenant_id
		    and t.period_id = p.id
		    and t.usage > 0), '')
		from billing_periods p
		where p.tenant_id = $1
		order by p.stream, p.starts_at`, s.tenant)
	require.NoError(s, err)
	all, err = pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s, err)
	return all
}

// hearAll is where Stripe says of each invoice that it is final.
func (s *subscriber) hearAll(known int) int {
	s.Helper()
	invoices := s.fake.State().Accounts[0].Invoices
	for _, i := range invoices[known:] {
		s.hear(i.ID)
	}
	return len(invoices)
}

// Each of two subscriptions has periods of its own: what is closed of one is open
// of the other, and every unit is billed by the one that has its item.
func TestASecondSubscriptionIsAStreamOfItsOwn(t *testing.T) {
	t.Parallel()
	s, second := newBeside(t)
	s.ingest("delta", "3")
	s.ingest("seats", "5")
	require.Equal(t, 2, s.report())
	require.Equal(t, "5", s.fake.Quantity("si_seats").String())
	require.Equal(t, []string{"0", "1"}, s.streams())
	require.Zero(t, s.report(), "nothing has changed")

	s.fake.Advance(s.first.End.Add(2 * time.Hour).Sub(s.fake.Now()))
	heard := s.hearAll(0)
	require.Equal(t, 1, heard)
	s.closeAndReport(nil)
	require.Equal(t, []string{"0: delta 3", "0", "1"}, s.streams())

	s.usedAt(s.first.Start.AddDate(0, 0, 10), "seats", "2") // no period of its own is closed
	s.usedAt(s.first.Start.AddDate(0, 0, 10), "delta", "1") // its own is
	s.quiesce(nil)
	require.Equal(t, "7", s.fake.Quantity("si_seats").String())
	require.Len(t, s.pending(), 1, "what came late is charged")
	require.Equal(t, "1000000", s.pending()[0].Amount.String())

	s.fake.Advance(second.End.Add(2 * time.Hour).Sub(s.fake.Now()))
	heard = s.hearAll(heard)
	require.Equal(t, 2, heard)
	s.closeAndReport(nil)
	require.Equal(t, []string{"0: delta 3", "0", "1: seats 7", "1"}, s.streams())
	s.usedAt(second.End.Add(-time.Hour), "seats", "4")
	s.usedAt(second.End.Add(-time.Hour), "delta", "6") // no period of its own is closed
	s.quiesce(nil)
	require.Equal(t, "6", s.fake.Quantity("si_delta").String())
	require.Equal(t, []string{"sub_1 1000000", "sub_2 4"}, s.pendingOf())
	s.requireReconciled("seats", "7 of 7 are invoiced: agreed")
	s.requireReconciled("delta", "3 of 3 are invoiced: agreed")
	s.requireAgreement()
}

// pendingOf are the pending invoice items by their subscription.
func (s *subscriber) pendingOf() (all []string) {
	for _, p := range s.pending() {
		all = append(all, p.Subscription+" "+p.Amount.String())
	}
	return all
}

// requireAgreement holds what is shown of the customer together: each meter once,
// and in periods of its stream.
func (s *subscriber) requireAgreement() {
	s.Helper()
	lines, err := s.store.Ledger.Preview(s.Context(), s.tenant, s.customer, s.fake.Now())
	require.NoError(s, err)
	shown := make(map[string]string)
	for _, l := range lines {
		if l.LateFor == nil {
			require.NotContains(s, shown, l.MeterSlug)
			shown[l.MeterSlug] = l.Usage.String() + l.Excluded
		}
	}
	require.Equal(s, "0", shown["seats"])
	require.Equal(s, "6", shown["delta"])
	first, err := s.store.Ledger.Statements(s.Context(), s.tenant, s.customer, billing.PeriodPlace{Start: s.fake.Now()}, 1, s.fake.Now())
	require.NoError(s, err)
	rest, err := s.store.Ledger.Statements(s.Context(), s.tenant, s.customer, first[0].Place(), 9, s.fake.Now())
	require.NoError(s, err)
	all := append(first, rest...)
	require.Len(s, all, 4)
	for _, p := range all {
		_, seats := p.Line(meterNamed(s, "seats"))
		_, delta := p.Line(meterNamed(s, "delta"))
		require.Equal(s, p.Stream == 1, seats)
		require.Equal(s, p.Stream == 0, delta)
	}
	at := func(p billing.Period) bool { return p.Contains(s.first.Start.AddDate(0, 0, 10)) }
	explained, err := s.store.Ledger.StatementOf(s.Context(), s.tenant, s.customer, meterNamed(s, "seats"), at, s.fake.Now())
	require.NoError(s, err)
	require.Equal(s, 1, explained.Stream)
	found, err := s.store.Ledger.OutOfSync(s.Context(), s.tenant, 0, 10, s.fake.Now())
	require.NoError(s, err)
	require.Empty(s, found.Customers)
	months, err := s.store.Ledger.Revenue(s.Context(), s.tenant, s.first.Start.AddDate(0, -1, 0), s.fake.Now())
	require.NoError(s, err)
	var sum metering.Decimal
	for _, m := range months {
		sum = sum.Add(m.Amount())
	}
	require.Equal(s, "100000.11", sum.String(), "3 + 1 + 6 units at 10,000, and 7 + 4 at a cent")
}

func meterNamed(s *subscriber, slug string) metering.MeterID {
	s.Helper()
	m, err := s.store.Meters.Get(s.Context(), s.tenant, slug)
	require.NoError(s, err)
	return m.ID
}
