package stripe_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// methods lists the methods of sending usage.
var methods = []billing.Method{stripe.UsageRecord, stripe.MeterDelta, stripe.MeterWindow, stripe.MeterLast}

// report returns the report that a ledger would store for the item of cus_1 with the method.
func report(method billing.Method, version int, value metering.Decimal) stripe.Report {
	id := fmt.Sprintf("%s-%d", method, version)
	r := stripe.Report{Method: method, Customer: "cus_1", Value: value, Timestamp: march.Add(time.Minute), Identifier: id, IdempotencyKey: "key-" + id}
	switch method {
	case stripe.UsageRecord:
		r.ItemID = "si_legacy_cus_1"
	case stripe.MeterDelta:
		r.EventName = "calls"
	case stripe.MeterWindow:
		r.EventName, r.CustomerKey, r.ValueKey = "minutes", "who", "amount"
	case stripe.MeterLast:
		r.EventName = "seats"
	}
	return r
}

// itemOf returns the id of the item of cus_1 with the method.
func itemOf(method billing.Method) string {
	return map[billing.Method]string{
		stripe.UsageRecord: "si_legacy_cus_1", stripe.MeterDelta: "si_delta_cus_1",
		stripe.MeterWindow: "si_window_cus_1", stripe.MeterLast: "si_last_cus_1",
	}[method]
}

func TestEachReportingMethodResultsInReportedTotal(t *testing.T) {
	t.Parallel()
	for _, method := range methods {
		b := setup(t)
		first, second := whole(40), whole(25)
		if method == stripe.MeterDelta {
			second = whole(-15)
		}
		for version, value := range []metering.Decimal{first, second} {
			answer, err := b.client.Send(t.Context(), key, report(method, version, value))
			require.NoError(t, err, method)
			require.Equal(t, 200, answer.Status)
			require.NotEmpty(t, answer.RequestID)
		}
		requireDecimal(t, "25", b.fake.Quantity(itemOf(method)), method)
	}
}

func TestWindowValuesAddUpAndAreReplacedSeparately(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for version, w := range []struct {
		hour  int
		value int64
	}{{0, 10}, {1, 20}, {0, 7}, {2, 1}, {1, 0}} {
		r := report(stripe.MeterWindow, version, whole(w.value))
		r.Timestamp = march.Add(time.Duration(w.hour) * time.Hour)
		_, err := b.client.Send(t.Context(), key, r)
		require.NoError(t, err)
	}
	requireDecimal(t, "8", b.fake.Quantity("si_window_cus_1"))
}

func TestReportSentTwiceCountsOnce(t *testing.T) {
	t.Parallel()
	for _, method := range methods {
		b := setup(t)
		r := report(method, 1, whole(9))
		_, err := b.client.Send(t.Context(), key, r)
		require.NoError(t, err)
		again, err := b.client.Send(t.Context(), key, r)
		require.NoError(t, err)
		require.True(t, again.Replayed, "the same key: the saved answer")
		require.False(t, again.Duplicate)

		r.IdempotencyKey = "another"
		third, err := b.client.Send(t.Context(), key, r)
		require.NoError(t, err, method)
		require.False(t, third.Replayed)
		require.Equal(t, method != stripe.UsageRecord, third.Duplicate, "the identifier: taken before")
		requireDecimal(t, "9", b.fake.Quantity(itemOf(method)), method)
	}
}

// failures lists the temporary failures of a call to Stripe.
var failures = map[string]struct {
	behaviour stripetest.Behaviour
	status    int
	code      string
}{
	"503":                     {stripetest.Behaviour{Status: 503}, 503, ""},
	"500":                     {stripetest.Behaviour{Status: 500}, 500, ""},
	"502":                     {stripetest.Behaviour{Status: 502}, 502, ""},
	"409":                     {stripetest.Behaviour{Status: 409}, 409, "idempotency_key_in_use"},
	"429":                     {stripetest.Behaviour{Status: 429, RetryAfter: 7}, 429, "rate_limit"},
	"lock timeout":            {stripetest.Behaviour{Mode: stripetest.LockTimeout}, 429, "lock_timeout"},
	"the answer is lost":      {stripetest.Behaviour{DropAnswer: true}, 0, ""},
	"it hangs":                {stripetest.Behaviour{Mode: stripetest.Hang}, 0, ""},
	"it hangs after the work": {stripetest.Behaviour{Mode: stripetest.Hang, Done: true}, 0, ""},
	"408":                     {stripetest.Behaviour{Status: 408}, 408, ""},
	"424":                     {stripetest.Behaviour{Status: 424}, 424, ""},
}

func TestRetryOfSameReportSucceedsAfterTransientFailure(t *testing.T) {
	t.Parallel()
	for name, f := range failures {
		for _, method := range methods {
			b := setup(t)
			f.behaviour.Times = 1
			b.fake.Behave(f.behaviour)
			ctx, cancel := context.WithCancel(t.Context())
			if f.behaviour.Mode == stripetest.Hang {
				ctx, cancel = b.untilProcessed(t.Context())
			}
			answer, err := b.client.Send(ctx, key, report(method, 1, whole(5)))
			cancel()
			require.Equal(t, metering.CodeProviderDown, metering.CodeOf(err), "%s, %s: %v", name, method, err)
			require.Equal(t, f.status, answer.Status, name)
			require.Equal(t, f.code, answer.Code, name)
			require.Equal(t, time.Duration(f.behaviour.RetryAfter)*time.Second, answer.RetryAfter)
			require.Equal(t, answer, stripe.AnswerOf(err))
			requireSafe(t, err)

			_, err = b.client.Send(t.Context(), key, report(method, 1, whole(5)))
			require.NoError(t, err, name)
			requireDecimal(t, "5", b.fake.Quantity(itemOf(method)), "%s, %s", name, method)
		}
	}
}

func TestSavedFailureIsRepeatedUntilNewIdempotencyKey(t *testing.T) {
	t.Parallel()
	for _, done := range []bool{false, true} {
		for _, method := range methods {
			b := setup(t)
			b.fake.Behave(stripetest.Behaviour{Status: 500, Mode: stripetest.Saved, Done: done, Times: 1})
			r := report(method, 1, whole(5))
			first, err := b.client.Send(t.Context(), key, r)
			require.Equal(t, metering.CodeProviderDown, metering.CodeOf(err))
			require.False(t, first.Replayed)
			for range 3 {
				again, err := b.client.Send(t.Context(), key, r)
				require.Equal(t, metering.CodeProviderDown, metering.CodeOf(err))
				require.ErrorContains(t, err, "repeated the status 500 that it stored")
				require.True(t, again.Replayed)
				require.Equal(t, 500, again.Status)
			}
			r.IdempotencyKey = "another"
			_, err = b.client.Send(t.Context(), key, r)
			require.NoError(t, err)
			requireDecimal(t, "5", b.fake.Quantity(itemOf(method)), method)
		}
	}
}

func TestSendErrorExplainsRefusal(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*stripe.Report)
		from   billing.Method
		rule   string
		cause  error
	}{
		"not legacy": {func(r *stripe.Report) { r.ItemID = "si_delta_cus_1" }, stripe.UsageRecord,
			"accepts meter events, not usage records", stripe.ErrNotLegacy},
		"the former period": {func(r *stripe.Report) { r.Timestamp = march }, stripe.UsageRecord,
			"Stripe accepts usage records only while their period runs", stripe.ErrOutsidePeriod},
		"the future": {func(r *stripe.Report) { r.Timestamp = noon.Add(time.Hour) }, stripe.UsageRecord,
			"Stripe accepts usage records only while their period runs", stripe.ErrOutsidePeriod},
		"unknown item":     {func(r *stripe.Report) { r.ItemID = "si_unknown" }, stripe.UsageRecord, "Stripe refused the request: 404 resource_missing", nil},
		"unknown customer": {func(r *stripe.Report) { r.Customer = "cus_canary" }, stripe.MeterDelta, "Stripe refused the request: 400. Its request log shows the reason", nil},
		"unknown event":    {func(r *stripe.Report) { r.EventName = "nothing" }, stripe.MeterDelta, "Stripe refused the request: 400", nil},
		"36 days ago":      {func(r *stripe.Report) { r.Timestamp = noon.Add(-36 * 24 * time.Hour) }, stripe.MeterDelta, "Stripe refused the request: 400", nil},
	} {
		b := setup(t)
		r := report(c.from, 1, whole(5))
		c.change(&r)
		_, err := b.client.Send(t.Context(), key, r)
		require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err), name)
		require.ErrorContains(t, err, c.rule, name)
		if c.cause != nil {
			require.ErrorIs(t, err, c.cause)
		}
		requireSafe(t, err)
	}
}

func TestSendErrorOfRefusedKeyAsksForAnotherKey(t *testing.T) {
	t.Parallel()
	for _, status := range []int{401, 403} {
		for _, method := range methods {
			b := setup(t)
			b.fake.Behave(stripetest.Behaviour{Status: status, Times: 1})
			answer, err := b.client.Send(t.Context(), key, report(method, 1, whole(5)))
			require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
			require.ErrorContains(t, err, "save another key")
			require.Equal(t, status, answer.Status)
			requireSafe(t, err)
		}
	}
}

func TestIdempotencyKeyIsRefusedForOtherReport(t *testing.T) {
	t.Parallel()
	b := setup(t)
	r := report(stripe.UsageRecord, 1, whole(5))
	_, err := b.client.Send(t.Context(), key, r)
	require.NoError(t, err)
	r.Value = whole(6)
	_, err = b.client.Send(t.Context(), key, r)
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
	require.ErrorContains(t, err, "already received another request with this idempotency key")
	requireDecimal(t, "5", b.fake.Quantity("si_legacy_cus_1"))
}

func TestConcurrentSendForSameCustomerMeterIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	refused := make(chan struct{})
	b.fake.Behave(stripetest.Behaviour{Until: refused, Times: 2})
	type sent struct {
		answer stripe.Answer
		err    error
	}
	calls := make(chan sent, 2)
	for n := range 2 {
		go func() {
			answer, err := b.client.Send(t.Context(), key, report(stripe.MeterDelta, n, whole(5)))
			calls <- sent{answer, err}
		}()
	}
	first := <-calls
	close(refused)
	require.Equal(t, metering.CodeProviderDown, metering.CodeOf(first.err))
	require.Equal(t, "lock_timeout", first.answer.Code)
	require.NoError(t, (<-calls).err)
	requireDecimal(t, "5", b.fake.Quantity("si_delta_cus_1"))
}

func TestInvalidReportIsRefusedBeforeSending(t *testing.T) {
	t.Parallel()
	client := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("it was sent") })
	long := strings.Repeat("x", 256)
	for name, c := range map[string]struct {
		from   billing.Method
		change func(*stripe.Report)
		code   metering.Code
		rule   string
	}{
		"no idempotency key":   {stripe.MeterDelta, func(r *stripe.Report) { r.IdempotencyKey = "" }, metering.CodeInvalid, "report.idempotency_key"},
		"long idempotency key": {stripe.MeterDelta, func(r *stripe.Report) { r.IdempotencyKey = long }, metering.CodeInvalid, "report.idempotency_key"},
		"no identifier":        {stripe.MeterDelta, func(r *stripe.Report) { r.Identifier = "" }, metering.CodeInvalid, "report.identifier"},
		"long identifier":      {stripe.MeterLast, func(r *stripe.Report) { r.Identifier = long[:101] }, metering.CodeInvalid, "report.identifier"},
		"no event name":        {stripe.MeterDelta, func(r *stripe.Report) { r.EventName = "" }, metering.CodeInvalid, "report.event_name"},
		"no customer":          {stripe.MeterDelta, func(r *stripe.Report) { r.Customer = "" }, metering.CodeInvalid, "customer must be set"},
		"no item":              {stripe.UsageRecord, func(r *stripe.Report) { r.ItemID = "" }, metering.CodeInvalid, "report.item_id"},
		"no timestamp":         {stripe.UsageRecord, func(r *stripe.Report) { r.Timestamp = time.Time{} }, metering.CodeInvalid, "report.timestamp"},
		"no method":            {stripe.UsageRecord, func(r *stripe.Report) { r.Method = "" }, metering.CodeInvalid, "report.method"},
		"13 decimals": {stripe.MeterDelta, func(r *stripe.Report) { r.Value = decimal("0.000000000001").Mul(decimal("0.1")) },
			metering.CodeInvalid, "report.value must have at most 12 decimals"},
		"16 digits, some of them decimals": {stripe.MeterLast, func(r *stripe.Report) { r.Value = decimal("-1234567890.123456") },
			metering.CodeProviderRefuse, "report.value must have at most 15 digits, as Stripe's meter events require; lower the meter's usage_scale"},
		"a fraction, legacy": {stripe.UsageRecord, func(r *stripe.Report) { r.Value = decimal("1.000000000001") }, metering.CodeInvalid, "must be a whole number"},
		"16 digits":          {stripe.MeterDelta, func(r *stripe.Report) { r.Value = decimal("1000000000000000") }, metering.CodeProviderRefuse, "at most 15 digits"},
		"-16 digits":         {stripe.MeterLast, func(r *stripe.Report) { r.Value = decimal("-1000000000000000") }, metering.CodeProviderRefuse, "at most 15 digits"},
		"negative, legacy":   {stripe.UsageRecord, func(r *stripe.Report) { r.Value = whole(-1) }, metering.CodeProviderRefuse, "quantity must be 0 to"},
		"20 digits, legacy": {stripe.UsageRecord, func(r *stripe.Report) { r.Value = decimal("99999999999999999").Mul(whole(1000)) },
			metering.CodeProviderRefuse, "quantity must be 0 to"},
	} {
		r := report(c.from, 1, whole(5))
		c.change(&r)
		_, err := client.Send(t.Context(), key, r)
		require.Equal(t, c.code, metering.CodeOf(err), name)
		require.ErrorContains(t, err, c.rule, name)
	}
}

func TestLargestValuesAreSentExactly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for method, value := range map[billing.Method]string{
		stripe.UsageRecord: "999999999999999999", stripe.MeterDelta: "999999999999999", stripe.MeterLast: "-999999999999999",
		stripe.MeterWindow: "123456789.123456",
	} {
		_, err := b.client.Send(t.Context(), key, report(method, 1, decimal(value)))
		require.NoError(t, err)
		requireDecimal(t, value, b.fake.Quantity(itemOf(method)))
	}
}

func TestDecimalsAreRefusedByWholeUnitAccounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := seed("acct_whole", "sk_test_whole", "cus_1")
	in.Account.Decimals = false
	require.NoError(t, b.fake.Seed(in))
	const problem = "Stripe refused a value with decimals: 400. If the account accepts whole units only, set the meter's usage_scale to 0; otherwise see the request log at Stripe"
	for n, value := range []string{"0.5", "0.000001", "-1234567.125"} {
		r := report(stripe.MeterDelta, n, decimal(value))
		_, err := b.client.Send(t.Context(), key, r)
		require.NoError(t, err)
		_, err = b.client.Send(t.Context(), "sk_test_whole", r)
		require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
		require.ErrorContains(t, err, problem)
	}
	requireDecimal(t, "-1234566.624999", summary(t, b, stripe.MeterDelta)) // 0.5 + 0.000001 - 1234567.125
	r := report(stripe.MeterDelta, 9, whole(5))
	r.Timestamp = april.AddDate(1, 0, 0)
	_, err := b.client.Send(t.Context(), "sk_test_whole", r)
	require.ErrorContains(t, err, "Stripe refused the request: 400. Its request log shows the reason", "what is whole is refused for something else")
}

// answer returns a handler that always responds with the status and body.
func answer(status int, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}
}

func TestUnreadableResponseIsClassifiedByStatus(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		handler http.HandlerFunc
		code    metering.Code
		rule    string
	}{
		"a proxy's 502":       {answer(502, "<html>canary</html>"), metering.CodeProviderDown, "Stripe answered 502"},
		"a proxy's 407":       {answer(407, "<html>canary</html>"), metering.CodeProviderRefuse, "Stripe refused the request: 407"},
		"a page":              {answer(200, "<html>canary</html>"), metering.CodeProviderDown, "could not be read"},
		"nothing":             {answer(200, ""), metering.CodeProviderDown, "could not be read"},
		"half an answer":      {answer(200, `{"id":"mbur`), metering.CodeProviderDown, "could not be read"},
		"a redirect":          {answer(302, "{}"), metering.CodeProviderDown, "could not be read"},
		"an empty 401":        {answer(401, ""), metering.CodeProviderRefuse, "save another key"},
		"an error of no kind": {answer(400, `{"error":{"message":"canary"}}`), metering.CodeProviderRefuse, "Stripe refused the request: 400. Its request log shows the reason"},
		"odd words": {answer(400, `{"error":{"message":"canary","code":"a canary\n","type":"x y","param":"<canary>"}}`),
			metering.CodeProviderRefuse, "Stripe refused the request: 400. Its request log shows the reason"},
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		}, metering.CodeProviderDown, "could not be read"},
		"cut in the middle": {func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte(`{"id":`))
		}, metering.CodeProviderDown, "could not be read"},
	} {
		for _, method := range methods[:2] {
			_, err := serve(t, c.handler).Send(t.Context(), key, report(method, 1, whole(5)))
			require.Equal(t, c.code, metering.CodeOf(err), "%s: %v", name, err)
			require.ErrorContains(t, err, c.rule, name)
			requireSafe(t, err)
		}
	}
}

func TestSendReturnsErrorOfCanceledContext(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := setup(t).client.Send(ctx, key, report(stripe.MeterDelta, 1, whole(5)))
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, metering.CodeProviderDown, metering.CodeOf(err))
}
