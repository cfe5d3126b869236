package stripe_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

func TestSummaryReturnsSentQuantity(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, method := range methods {
		_, err := b.client.Send(t.Context(), key, report(method, 1, whole(41)))
		require.NoError(t, err)
		requireDecimal(t, "41", summary(t, b, method))
	}
	requireDecimal(t, "0", b.fake.Quantity("si_count_cus_1"))
}

// summary returns the usage in Stripe's summary of the item with the method.
func summary(t *testing.T, b bundle, method billing.Method) metering.Decimal {
	t.Helper()
	meter := map[billing.Method]string{stripe.MeterDelta: "mtr_delta", stripe.MeterWindow: "mtr_window", stripe.MeterLast: "mtr_last"}[method]
	var got metering.Decimal
	var err error
	if method == stripe.UsageRecord {
		got, err = b.client.RecordSummary(t.Context(), key, "si_legacy_cus_1", march.Add(time.Minute))
	} else {
		got, err = b.client.Summary(t.Context(), key, meter, "cus_1", march, april)
	}
	require.NoError(t, err)
	return got
}

func TestSummaryExcludesEventsRejectedLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.fake.Behave(stripetest.Behaviour{Mode: stripetest.RejectLater, Times: 1})
	_, err := b.client.Send(t.Context(), key, report(stripe.MeterDelta, 1, whole(41)))
	require.NoError(t, err)
	requireDecimal(t, "0", summary(t, b, stripe.MeterDelta))
	require.Equal(t, []stripetest.Rejection{{Identifier: "meter_delta-1", Meter: "mtr_delta", Customer: "cus_1"}}, b.fake.State().Accounts[0].Rejected)
}

func TestStaleSummaryShowsQuantityLater(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.client.Send(t.Context(), key, report(stripe.MeterDelta, 1, whole(41)))
	require.NoError(t, err)
	b.fake.Behave(stripetest.Behaviour{Mode: stripetest.Stale, Times: 2})
	requireDecimal(t, "0", summary(t, b, stripe.MeterDelta))
	b.fake.Advance(10 * time.Minute)
	requireDecimal(t, "41", summary(t, b, stripe.MeterDelta))
}

func TestRecordTimeOfPeriodStartLiesInPeriod(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := report(stripe.UsageRecord, 1, whole(41))
	r.Timestamp = stripe.RecordTime(march)
	require.Equal(t, march.Add(time.Second), r.Timestamp)
	_, err := b.client.Send(t.Context(), key, r)
	require.NoError(t, err)
	got, err := b.client.RecordSummary(t.Context(), key, "si_legacy_cus_1", r.Timestamp)
	require.NoError(t, err)
	requireDecimal(t, "41", got)
}

// TestSummaryIsReadWithoutFloatErrors checks that the digits of a sum are read exactly, and that the rounding errors of
// a sum in double precision are removed.
func TestSummaryIsReadWithoutFloatErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"999999999999999999": "999999999999999999", "123456789.123456": "123456789.123456", "25.0": "25", "1.5e3": "1500", "-7": "-7",
		"0.30000000000000004": "0.3", "1234567.2999999998": "1234567.3", "1e-06": "0.000001", // possible double-precision sums
	} {
		client := serve(t, answer(200, `{"data":[{"id":"mtrusg_1","aggregated_value":`+text+`}]}`))
		got, err := client.Summary(t.Context(), key, "mtr_1", "cus_1", march, april)
		require.NoError(t, err)
		requireDecimal(t, want, got)
	}
	client := serve(t, answer(200, `{"data":[{"id":"mtrusg_1","aggregated_value":1e400}]}`))
	_, err := client.Summary(t.Context(), key, "mtr_1", "cus_1", march, april)
	require.Equal(t, metering.CodeProviderDown, metering.CodeOf(err))
}

func TestEventTimeMovesEventIntoPeriodsSummary(t *testing.T) {
	t.Parallel()
	start, end := march.Add(17*time.Second), noon.Add(43*time.Second) // Stripe's periods begin at any second
	for name, c := range map[string]struct{ at, want time.Time }{
		"the first second":  {start, march.Add(time.Minute)},
		"before the period": {start.Add(-time.Hour), march.Add(time.Minute)},
		"inside":            {march.Add(90 * time.Second), march.Add(90 * time.Second)},
		"a fraction":        {march.Add(90*time.Second + 5), march.Add(90 * time.Second)},
		"the last second":   {end.Add(-time.Second), noon.Add(-time.Second)},
		"after the period":  {end.Add(time.Hour), noon.Add(-time.Second)},
	} {
		b := setup(t)
		r := report(stripe.MeterDelta, 1, whole(3))
		r.Timestamp = stripe.EventTime(c.at, start, end)
		require.Equal(t, c.want, r.Timestamp, name)
		_, err := b.client.Send(t.Context(), key, r)
		require.NoError(t, err)
		got, err := b.client.Summary(t.Context(), key, "mtr_delta", "cus_1", start, end)
		require.NoError(t, err)
		requireDecimal(t, "3", got, name)
	}
	none, err := serve(t, nil).Summary(t.Context(), key, "mtr_1", "cus_1", start, start.Add(30*time.Second))
	require.NoError(t, err)
	require.True(t, none.IsZero())
}

func TestRecordSummaryReturnsUsageOfPeriod(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.client.Send(t.Context(), key, report(stripe.UsageRecord, 1, whole(41)))
	require.NoError(t, err)
	b.fake.Advance(april.Sub(noon) + time.Hour)
	r := report(stripe.UsageRecord, 2, whole(2))
	r.Timestamp = april.Add(time.Minute)
	_, err = b.client.Send(t.Context(), key, r)
	require.NoError(t, err)

	for at, want := range map[time.Time]string{march.Add(time.Second): "41", april: "41", april.Add(time.Second): "2"} {
		got, err := b.client.RecordSummary(t.Context(), key, "si_legacy_cus_1", at)
		require.NoError(t, err)
		requireDecimal(t, want, got, at.String())
	}
	_, err = b.client.RecordSummary(t.Context(), key, "si_legacy_cus_1", march)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
}

func TestRecordSummaryWithoutPeriodBoundsIsReturned(t *testing.T) {
	t.Parallel()
	client := serve(t, answer(200, `{"data":[{"id":"sis_1","total_usage":12,"period":{"start":null,"end":null}}]}`))
	got, err := client.RecordSummary(t.Context(), key, "si_1", march)
	require.NoError(t, err)
	requireDecimal(t, "12", got)
}
