package db_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

func TestStatementContainsUsageAndAmountOfEachMeter(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.price("10", "100", "0.005")
	b.use("99.5")
	b.use("42.25") // 141.75 in total: 41.75 more than included, 0.20875 more than the base price

	body := b.body(b.next(0).ID)
	m := read(t, body)
	require.Equal(t, "usage.statement", m.Type)
	require.Equal(t, b.tenant.String(), m.Data.TenantID)
	require.Equal(t, "acme", m.Data.CustomerExternalID)
	month := billing.CalendarPeriod(b.now, time.UTC)
	require.True(t, m.Data.Period.Start.Equal(month.Start) && m.Data.Period.End.Equal(month.End))
	require.EqualValues(t, 1, m.Data.Sequence)
	require.Equal(t, "USD", m.Data.Currency)
	require.Len(t, m.Data.Meters, 1)
	require.Equal(t, b.meter.ID.String(), m.Data.Meters[0].MeterID)
	require.Equal(t, "api-calls", m.Data.Meters[0].MeterSlug)
	require.Equal(t, "141.75", m.Data.Meters[0].Usage.String())
	require.Equal(t, "0.005", m.Data.Meters[0].UnitPrice.String())
	require.Equal(t, "10.21", m.Data.Meters[0].Amount.String())
	require.Contains(t, string(body), `"adjustments":[]`)
	require.Contains(t, string(body), `"usage":141.75`)
}

func TestUnchangedStatementIsNotSentAgain(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	b.accept()
	planned := b.plan(1)
	require.Empty(t, planned.Send)
	require.Len(t, planned.UpToDate, 1)

	b.price("0", "0", "2")
	require.Equal(t, "2", b.accept().Data.Meters[0].Amount.String(), "the first price also applies to earlier usage")
	b.use("-1")
	b.use("1")
	require.Equal(t, "1", b.accept().Data.Meters[0].Usage.String(), "the total is the same, of more events")
	dbtest.Meter(t, b.store, b.tenant, "storage", "stored")
	require.Len(t, b.accept().Data.Meters, 2, "a new meter is a change")
	require.Empty(t, b.plan(anew).Send)
}

func TestRejectedStatementDoesNotDelayStatementOfNextPeriod(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	b.now = billing.CalendarPeriod(b.now, time.UTC).End.Add(time.Hour)
	closed := b.next(0)
	b.lease(closed.ID)
	b.complete(closed.ID, billing.Rejected)
	next := b.next(0)
	require.True(t, next.Period.Start.Equal(closed.Period.End))
	b.lease(next.ID)
	b.complete(next.ID, billing.Accepted)
	done := b.plan(0)
	require.Empty(t, done.Send)
	require.Equal(t, []uuid.UUID{next.ID}, done.UpToDate)
	require.True(t, b.next(next.Number).Period.Start.Equal(closed.Period.Start), "the next pass tries it again")
}

func TestEachPeriodHasAStatementOfItsOwnOldestFirst(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	this := billing.CalendarPeriod(b.now, time.UTC)
	b.now = this.End.Add(time.Hour)
	first := b.accept()
	require.True(t, this.Start.Equal(first.Data.Period.Start))
	second := b.accept()
	require.True(t, this.End.Equal(second.Data.Period.Start))
	require.EqualValues(t, 2, second.Data.Sequence)
	require.Equal(t, "0", second.Data.Meters[0].Usage.String())
	require.Len(t, b.plan(anew).UpToDate, 2)
}

func TestEachMeterIsBilledInItsOwnCurrency(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.price("1", "0", "0.125")
	other := dbtest.Meter(t, b.store, b.tenant, "storage", "stored")
	dbtest.Meter(t, b.store, b.tenant, "free", "freed")
	dbtest.Price(t, b.store, b.tenant, billing.Price{
		MeterID: other.ID, Terms: billing.Terms{BasePrice: metering.MustDecimal("99.5"), Currency: "JPY"}, EffectiveFrom: b.now,
	})
	b.use("1")
	m := b.accept()
	require.Equal(t, "USD", m.Data.Currency, "the tenant's: the meters have none in common")
	var owed []string
	for _, l := range m.Data.Meters {
		owed = append(owed, l.MeterSlug+" "+l.Amount.String()+" "+l.Currency)
	}
	require.Equal(t, []string{"api-calls 1.12 USD", "storage 100 JPY", "free 0 USD"}, owed)
	require.Empty(t, b.plan(anew).Excluded)
	require.Empty(t, b.outOfSync())
}

func TestMeterPricedLaterIsNotBilledAgainByAnotherConnection(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("4")
	require.Equal(t, "USD", b.accept().Data.Meters[0].Currency, "the tenant's, as it has no price yet")
	dbtest.Price(t, b.store, b.tenant, billing.Price{MeterID: b.meter.ID, Terms: billing.Terms{OverageRate: metering.Whole(1), Currency: "EUR"}})
	require.Equal(t, "4", b.accept().Data.Meters[0].Amount.String())
	b.useProvider("https://other.example.com/")
	require.Equal(t, "0", b.accept().Data.Meters[0].Amount.String())
}

func TestAmountsAreRoundedToTheCurrencysMinorUnit(t *testing.T) {
	t.Parallel()
	for currency, want := range map[string]string{"USD": "0.12", "JPY": "0", "KWD": "0.125"} {
		b := newBiller(t)
		dbtest.Price(t, b.store, b.tenant, billing.Price{
			MeterID: b.meter.ID, Terms: billing.Terms{OverageRate: metering.MustDecimal("0.125"), Currency: currency}, EffectiveFrom: b.now,
		})
		b.use("1")
		m := b.accept()
		require.Equal(t, currency, m.Data.Currency)
		require.Equal(t, want, m.Data.Meters[0].Amount.String())
	}
}

func TestExcludedMeterKeepsReportedUsageInStatement(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("5")
	b.accept()
	other := dbtest.Meter(t, b.store, b.tenant, "storage", "stored")
	b.use("2")
	m := b.acceptOf(b.plan(anew, b.meter.ID))
	require.Len(t, m.Data.Meters, 2)
	require.Equal(t, "5", m.Data.Meters[0].Usage.String())
	require.Equal(t, "api-calls", m.Data.Meters[0].MeterSlug)
	require.NotEmpty(t, b.outOfSync(), "the usage of the excluded meter is still to be reported")
	require.Equal(t, "7", b.accept().Data.Meters[0].Usage.String())

	third := dbtest.Meter(t, b.store, b.tenant, "seats", "seat")
	planned := b.plan(anew, third.ID, other.ID)
	require.Empty(t, planned.Send, "an excluded meter without reports is not in the statement")
	require.Equal(t, billing.ExcludedByOperator, planned.Excluded[0].Code)
}

// TestAStatementIsReadAtOneInstant checks that a statement has the same usage for two meters that count the same
// events. Events arrive while the statement is planned.
func TestAStatementIsReadAtOneInstant(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	dbtest.Meter(t, b.store, b.tenant, "calls-again", "api_call")
	const plans, eventsDuringEach = 100, 10
	begun := make(chan struct{}, plans)
	var ingesting sync.WaitGroup
	ingesting.Go(func() {
		for range begun {
			for range eventsDuringEach {
				event := dbtest.Event(t, "api_call", "acme", b.now, "1", "", "")
				_, _ = b.writer.Ingest(context.Background(), b.tenant, []metering.Event{event})
			}
		}
	})
	defer ingesting.Wait()
	defer close(begun)
	for range plans {
		begun <- struct{}{}
		planned := b.plan(anew)
		if len(planned.Send) == 0 {
			continue
		}
		meters := b.readMessage(planned.Send[0].ID).Data.Meters
		require.Equal(t, meters[0].Usage, meters[1].Usage)
		b.complete(planned.Send[0].ID, billing.Accepted)
	}
}
