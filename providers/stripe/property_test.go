package stripe_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// trouble lists the behaviours that the fake may have for one call. Some cause no failure.
var trouble = []stripetest.Behaviour{
	{}, {}, {},
	{Status: 503},
	{Status: 500, Mode: stripetest.Saved},
	{Status: 500, Mode: stripetest.Saved, Done: true},
	{Status: 429, RetryAfter: 1},
	{Status: 409},
	{Mode: stripetest.LockTimeout},
	{DropAnswer: true},
	{Mode: stripetest.Hang},
	{Mode: stripetest.Hang, Done: true},
}

// ledger sends reports like the package's real caller, but stores nothing. It sends a report until the outcome is
// known, and only then creates the next report.
type ledger struct {
	bundle
	t        *rapid.T
	method   billing.Method
	decimals int32
	version  int
	reported metering.Decimal // sum of the values reported so far
}

func TestPropertyStripeTotalIsLastSentTotalDespiteFailures(t *testing.T) {
	t.Parallel()
	for _, method := range methods {
		t.Run(string(method), func(t *testing.T) {
			t.Parallel()
			histories.Check(t, func(t *rapid.T) {
				b, stop := start(t, "")
				defer stop()
				l := &ledger{bundle: b, t: t, method: method}
				if method != stripe.UsageRecord {
					l.decimals = rapid.Int32Range(0, metering.MaxUsageScale).Draw(t, "decimals")
				}
				want := l.reportRandomTotals()
				b.fake.Behave(stripetest.Behaviour{})
				requireDecimal(t, want.String(), b.fake.Quantity(itemOf(method)))
				l.requireSummary(want)
			})
		})
	}
}

// reportRandomTotals reports random totals, and returns the usage that Stripe must have counted afterwards.
func (l *ledger) reportRandomTotals() metering.Decimal {
	totals := map[int]metering.Decimal{} // by hour; only MeterWindow uses more than hour 0
	for range rapid.IntRange(1, 6).Draw(l.t, "totals") {
		hour := 0
		if l.method == stripe.MeterWindow {
			hour = rapid.IntRange(0, 2).Draw(l.t, "hour")
		}
		totals[hour] = whole(rapid.Int64Range(0, 10_000_000_000).Draw(l.t, "ten-millionths")).Mul(decimal("0.0000001"))
		l.reportTotal(hour, totals[hour])
	}
	var want metering.Decimal
	for _, total := range totals {
		want = want.Add(billing.Units(total, l.decimals))
	}
	return want
}

// reportTotal reports the total of an hour, in the form that the method requires.
func (l *ledger) reportTotal(hour int, total metering.Decimal) {
	l.version++
	l.fake.Advance(time.Second) // so that each MeterLast event is later than the previous one
	r := report(l.method, l.version, billing.Units(total, l.decimals))
	switch l.method {
	case stripe.MeterDelta:
		r.Value = billing.UnitsBetween(l.reported, total, l.decimals)
	case stripe.MeterLast:
		r.Timestamp = l.fake.Now()
	case stripe.MeterWindow:
		r.Timestamp = march.Add(time.Duration(hour) * time.Hour)
	}
	l.sendUntilKnown(r)
	l.reported = l.reported.Add(r.Value)
}

// sendUntilKnown sends a report until it is known to be accepted.
func (l *ledger) sendUntilKnown(r stripe.Report) {
	first := l.fake.Now()
	for n := range attempts {
		if l.method == stripe.MeterDelta && l.fake.Now().Sub(first) >= 24*time.Hour && l.isCounted(r) {
			return // after 24 hours, Stripe may count a repeated event again
		}
		answer, err := l.send(r, n)
		if err == nil {
			return
		}
		require.Equal(l.t, metering.CodeProviderDown, metering.CodeOf(err), "%v", err)
		if answer.Replayed && answer.Status >= 500 {
			r.IdempotencyKey += "'"
		}
		l.wait()
	}
	l.t.Fatal("never settled")
}

// attempts is the maximum number of attempts of a report. The fake does not fail in the last three, so every report is
// accepted in the end.
const attempts = 40

// send makes the nth attempt, from 0, to send a report.
func (l *ledger) send(r stripe.Report, n int) (stripe.Answer, error) {
	b := stripetest.Behaviour{}
	if n < attempts-3 {
		b = rapid.SampledFrom(trouble).Draw(l.t, "trouble")
		b.Times = 1
	}
	l.fake.Behave(b)
	ctx, cancel := context.WithCancel(context.Background())
	if b.Mode == stripetest.Hang {
		ctx, cancel = l.untilProcessed(context.Background())
	}
	defer cancel()
	return l.client.Send(ctx, key, r)
}

// wait advances the clock by a random time within the period.
func (l *ledger) wait() {
	d := rapid.SampledFrom([]time.Duration{0, 0, time.Minute, 23 * time.Hour, 25 * time.Hour}).Draw(l.t, "wait")
	if l.fake.Now().Add(d).Before(april.Add(-25 * time.Hour)) {
		l.fake.Advance(d)
	}
}

// isCounted reports whether Stripe's summary includes the report.
func (l *ledger) isCounted(r stripe.Report) bool {
	l.fake.Behave(stripetest.Behaviour{})
	got, err := l.client.Summary(context.Background(), key, "mtr_delta", "cus_1", march, april)
	require.NoError(l.t, err)
	return got.Equal(l.reported.Add(r.Value))
}

// requireSummary checks the usage in Stripe's summary.
func (l *ledger) requireSummary(want metering.Decimal) {
	var got metering.Decimal
	var err error
	switch l.method {
	case stripe.UsageRecord:
		got, err = l.client.RecordSummary(context.Background(), key, "si_legacy_cus_1", march.Add(time.Minute))
	case stripe.MeterDelta:
		got, err = l.client.Summary(context.Background(), key, "mtr_delta", "cus_1", march, april)
	case stripe.MeterWindow:
		got, err = l.client.Summary(context.Background(), key, "mtr_window", "cus_1", march, april)
	case stripe.MeterLast:
		got, err = l.client.Summary(context.Background(), key, "mtr_last", "cus_1", march, april)
	}
	require.NoError(l.t, err)
	requireDecimal(l.t, want.String(), got)
}
