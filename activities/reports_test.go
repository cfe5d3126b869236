package activities_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripetest"
	"github.com/odometer-metering/odometer/providers/webhook"
)

func TestFailedSendReleasesLeaseOfReport(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	send := b.planned(t)
	b.far.err = metering.Errorf(metering.CodeProviderDown, "the webhook answered 503")
	b.far.answer = webhook.Answer{Status: 503, RetryAfter: time.Minute}
	for range 2 {
		_, err := b.ExecuteActivity(b.do.SendReport, send)
		require.ErrorContains(t, err, "the webhook answered 503")
	}
	require.Len(t, b.far.bodies, 2)
	b.far.err = nil
	require.Equal(t, billing.Accepted, run[activities.SendReportResult](t, b, b.do.SendReport, send).State)
	require.Equal(t, b.far.bodies[0], b.far.bodies[2])
}

func TestRetryDelayIsTheReceiversRetryAfter(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	send := b.planned(t)
	b.far.err = metering.Errorf(metering.CodeProviderDown, "the webhook answered 429")
	b.far.answer = webhook.Answer{Status: 429, RetryAfter: time.Minute}
	_, err := b.do.SendReport(t.Context(), send)
	require.Equal(t, time.Minute, nextRetry(t, activities.Failure(err)))
}

// nextRetry returns the retry delay of a failure.
func nextRetry(t *testing.T, err error) time.Duration {
	t.Helper()
	var failure *temporal.ApplicationError
	require.ErrorAs(t, err, &failure)
	return failure.NextRetryDelay()
}

func TestSendReportFailsIfSecretIsSealedWithUnknownKey(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	other, err := seal.ParseKeyring("other:" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{8}, 32)))
	require.NoError(t, err)
	do := activities.New(activities.Config{Store: b.store, Keyring: other, Webhook: b.far, Providers: b.far.registry(), Metrics: activities.NewMetrics(nil), Now: clock.Now})
	send := b.planned(t)
	_, err = do.SendReport(t.Context(), send)
	require.Equal(t, metering.CodeProviderRefuse, metering.CodeOf(err))
	require.ErrorContains(t, err, "save the provider again")
	require.Empty(t, b.far.bodies)
	require.Equal(t, billing.Sending, b.state(t, send.ReportID), "nobody has refused it")
}

func TestRefusedReportIsRejectedWithProvidersError(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	send := b.planned(t)
	b.far.err = metering.Errorf(metering.CodeProviderRefuse, "save another URL")
	refused := run[activities.SendReportResult](t, b, b.do.SendReport, send)
	require.Equal(t, activities.SendReportResult{State: billing.Rejected, Response: "save another URL", Refused: true}, refused)
	require.Empty(t, b.plan(t, 0).Send, "this pass was refused")
	again := b.plan(t, 1)
	require.Len(t, again.Send, 1)
	require.NotEqual(t, send.ReportID, again.Send[0].ID)
	require.EqualValues(t, 2, again.Send[0].Number)
}

// TestConcurrentSendOfReportFailsUntilLeaseEnds checks that a second concurrent send of a report fails, with a retry
// delay until the end of the first lease.
func TestConcurrentSendOfReportFailsUntilLeaseEnds(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	send := b.planned(t)
	b.far.onDeliver = func() {
		_, err := b.do.SendReport(t.Context(), send)
		require.Equal(t, metering.CodeOverloaded, metering.CodeOf(err))
		require.ErrorContains(t, err, "the report is being sent")
		var busy ledger.Busy
		require.ErrorAs(t, err, &busy)
		require.Positive(t, busy.Wait)
		require.Equal(t, busy.Wait, nextRetry(t, activities.Failure(err)))
	}
	require.Equal(t, billing.Accepted, run[activities.SendReportResult](t, b, b.do.SendReport, send).State)
	require.Len(t, b.far.bodies, 1)
}

func TestConcurrentSendsOfReportDeliverItOnce(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	send := b.planned(t)
	results, failures := make([]activities.SendReportResult, 8), make([]error, 8)
	var sending sync.WaitGroup
	for i := range failures {
		sending.Go(func() { results[i], failures[i] = b.do.SendReport(t.Context(), send) })
	}
	sending.Wait()
	accepted := 0
	for i, err := range failures {
		switch metering.CodeOf(err) {
		case "":
			require.Equal(t, billing.Accepted, results[i].State)
			accepted++
		case metering.CodeOverloaded:
			require.ErrorContains(t, err, "the report is being sent")
		default:
			require.ErrorContains(t, err, "the outcome of the report is already known")
		}
	}
	require.Equal(t, 1, accepted)
	require.Len(t, b.far.bodies, 1)
}

// dying returns activities that lose the database once the provider has received a report, as if the worker is killed
// before it records the answer.
func (b *bench) dying(t *testing.T) *activities.Activities {
	t.Helper()
	store, err := dbtest.Connect(context.WithoutCancel(t.Context()), dbtest.URL(t))
	require.NoError(t, err)
	b.far.onDeliver = store.Close
	return activities.New(activities.Config{Store: store, Keyring: b.ring, Webhook: b.far, Providers: b.far.registry(), Metrics: activities.NewMetrics(nil), Now: func() time.Time { return b.now }})
}

func TestAcceptedReportWithUnrecordedOutcomeIsSentAgainUnchanged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	send := b.planned(t)
	_, err := b.dying(t).SendReport(t.Context(), send)
	require.ErrorContains(t, err, "complete report")
	b.far.onDeliver = nil
	_, err = b.ExecuteActivity(b.do.SendReport, send)
	require.ErrorContains(t, err, "the report is being sent", "the lease lasts: nobody knows whether the worker is dead")
	plan := b.plan(t, 0)
	require.Len(t, plan.Send, 1)
	require.Equal(t, send.ReportID, plan.Send[0].ID, "nothing else is planned meanwhile")

	b.now = b.now.Add(time.Minute)
	require.Equal(t, billing.Accepted, run[activities.SendReportResult](t, b, b.do.SendReport, send).State)
	require.Len(t, b.far.bodies, 2)
	require.Equal(t, b.far.bodies[0], b.far.bodies[1])
	require.Equal(t, b.far.ids[0], b.far.ids[1])
}

// TestUndecidedReportIsNotSentAfterConnectionIsReplaced checks that an undecided report to a replaced connection is
// not sent to the new one. Its outcome is unknown if it may have arrived; otherwise it is rejected. The
// undecided report does not delay reports to the new connection.
func TestUndecidedReportIsNotSentAfterConnectionIsReplaced(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		dies  bool // the worker stops after the receiver has the report
		state billing.State
		err   string
	}{
		"not sent yet":        {false, billing.Rejected, "the outcome of the report is already known"},
		"it may have arrived": {true, billing.InDoubt, "the billing provider was replaced"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			former := b.planned(t)
			if c.dies {
				_, err := b.dying(t).SendReport(t.Context(), former)
				require.Error(t, err)
				b.far.onDeliver = nil
			}
			sent := len(b.far.bodies)
			b.useProvider(t, "https://other.example.com/")
			b.now = b.now.Add(time.Minute)
			_, err := b.ExecuteActivity(b.do.SendReport, former)
			require.ErrorContains(t, err, "the billing provider was replaced")

			again := b.planned(t)
			require.NotEqual(t, former.ReportID, again.ReportID)
			require.Equal(t, c.state, b.state(t, former.ReportID))
			_, err = b.ExecuteActivity(b.do.SendReport, former)
			require.ErrorContains(t, err, c.err)
			require.Len(t, b.far.bodies, sent)
			require.Equal(t, billing.Accepted, run[activities.SendReportResult](t, b, b.do.SendReport, again).State)
			require.Len(t, b.far.bodies, sent+1)
			require.Equal(t, c.state, b.state(t, former.ReportID))
			for _, report := range b.plan(t, 0).Send { // report of a period that has begun in the meantime
				require.Greater(t, report.Number, int64(2))
			}
		})
	}
}

// state returns the stored state of a report.
func (b *bench) state(t *testing.T, report uuid.UUID) (state billing.State) {
	t.Helper()
	row := dbtest.Conn(t).QueryRow(t.Context(), `select state from billing_reports where tenant_id = $1 and id = $2`, b.tenant, report)
	require.NoError(t, row.Scan(&state))
	return state
}

// TestStripeCountsReportWithUnrecordedAnswerOnce checks that Stripe counts a report once if the worker did not
// record the answer. Stripe recognizes the repeated report by its key.
func TestStripeCountsReportWithUnrecordedAnswerOnce(t *testing.T) {
	t.Parallel()
	for _, meter := range inAllWays {
		t.Run(meter, func(t *testing.T) {
			t.Parallel()
			s := newRegular(t)
			s.ingest(meter, "5")
			s.read()
			report := s.planned(true)[0]
			require.True(t, s.dies(report))
			require.Equal(t, "5", s.fake.Quantity("si_"+meter).String())
			_, err := s.ExecuteActivity(s.do.SendReport, activities.SendReportInput{TenantID: s.tenant, ReportID: report})
			require.ErrorContains(t, err, "the report is being sent")

			s.ingest(meter, "2")
			s.fake.Advance(time.Minute)
			require.True(t, s.sent(report))
			require.Equal(t, "5", s.fake.Quantity("si_"+meter).String())
			require.Equal(t, 1, s.report())
			require.Equal(t, "7", s.fake.Quantity("si_"+meter).String())
		})
	}
}

// TestUnrecordedReportToPreviousSubscriptionIsInDoubt checks that an unrecorded report has an unknown outcome after the
// customer's subscription has changed. No count shows whether the previous subscription has the report, so an operator
// has to check.
func TestUnrecordedReportToPreviousSubscriptionIsInDoubt(t *testing.T) {
	t.Parallel()
	s := newRegular(t)
	s.ingest("delta", "5")
	s.read()
	report := s.planned(true)[0]
	require.True(t, s.dies(report))
	_, err := dbtest.Conn(t).Exec(t.Context(), `
		update billing_periods
		set subscription_start = greatest(starts_at, subscription_start) + interval '1 hour'
		where tenant_id = $1`, s.tenant)
	require.NoError(t, err)
	s.fake.Advance(24 * time.Hour)
	result, err := s.do.SendReport(t.Context(), activities.SendReportInput{TenantID: s.tenant, ReportID: report})
	require.NoError(t, err)
	require.Equal(t, billing.InDoubt, result.State, result.Response)
	require.Equal(t, "5", s.fake.Quantity("si_delta").String(), "it is not sent again")
}

// TestReportThatMayHaveArrivedIsNotRejectedByLaterRefusal checks that a refusal does not reject a report with an
// earlier attempt that may have arrived.
func TestReportThatMayHaveArrivedIsNotRejectedByLaterRefusal(t *testing.T) {
	t.Parallel()
	const events = "/v1/billing/meter_events"
	for name, arrived := range map[string]bool{"it arrived": true, "it did not": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newRegular(t)
			s.ingest("delta", "5")
			s.read()
			report := s.planned(true)[0]
			send := func() (activities.SendReportResult, error) {
				return s.do.SendReport(t.Context(), activities.SendReportInput{TenantID: s.tenant, ReportID: report})
			}
			s.fake.Behave(stripetest.Behaviour{Status: 500, Done: arrived, Times: 1, Path: events})
			_, err := send()
			require.Equal(t, metering.CodeProviderDown, metering.CodeOf(err))

			s.fake.Behave(stripetest.Behaviour{Status: 403, Times: 1, Path: events})
			result, err := send()
			require.NoError(t, err)
			if !arrived {
				require.Equal(t, billing.InDoubt, result.State, result.Response)
				s.fake.Advance(25 * time.Hour)
				result, err = send()
				require.NoError(t, err)
				require.Equal(t, billing.InDoubt, result.State, "what is not counted may be counted later: only the final invoice says")
				require.Equal(t, "0", s.fake.Quantity("si_delta").String())
				return
			}
			require.Equal(t, billing.Accepted, result.State, result.Response)
			require.Equal(t, "5", s.fake.Quantity("si_delta").String())
			s.ingest("delta", "2")
			require.Equal(t, 1, s.report())
			require.Equal(t, "7", s.fake.Quantity("si_delta").String())
		})
	}
}

// TestAStatementThatMayHaveArrivedIsNotRejectedByALaterRefusal checks that a refusal does not reject a statement with
// an earlier attempt that may have arrived. A new receiver gets only the other units. The same receiver gets the
// statement again.
func TestAStatementThatMayHaveArrivedIsNotRejectedByALaterRefusal(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T) (b *bench, send activities.SendReportInput) {
		t.Helper()
		b = newBench(t)
		send = b.planned(t)
		b.far.err = metering.Errorf(metering.CodeProviderDown, "the webhook did not answer")
		_, err := b.ExecuteActivity(b.do.SendReport, send)
		require.ErrorContains(t, err, "the webhook did not answer")
		b.far.err = metering.Errorf(metering.CodeProviderRefuse, "the webhook answered 410 Gone; save another URL")
		result := run[activities.SendReportResult](t, b, b.do.SendReport, send)
		require.Equal(t, activities.SendReportResult{
			State: billing.InDoubt, Response: "refused, but an earlier attempt may have arrived: the webhook answered 410 Gone; save another URL",
		}, result)
		require.Equal(t, billing.InDoubt, b.state(t, send.ReportID))
		b.far.err = nil
		return b, send
	}
	t.Run("a new receiver", func(t *testing.T) {
		t.Parallel()
		b, send := refused(t)
		b.useProvider(t, "https://other.example.com/")
		run[activities.SendReportResult](t, b, b.do.SendReport, b.planned(t))
		require.Equal(t, "0", b.stated(t))
		require.Equal(t, billing.InDoubt, b.state(t, send.ReportID))
	})
	t.Run("the same receiver", func(t *testing.T) {
		t.Parallel()
		b, send := refused(t)
		require.Equal(t, send, b.planned(t))
		require.Equal(t, billing.Accepted, run[activities.SendReportResult](t, b, b.do.SendReport, send).State)
		require.Equal(t, b.far.bodies[0], b.far.bodies[2])
	})
}

// TestStatementRefusedInBatchCountsAsNotArrived checks that a batch plans a refused statement again, so that the
// customer's own run does not take the refusal for an attempt that may have arrived. A new receiver gets all units.
func TestStatementRefusedInBatchCountsAsNotArrived(t *testing.T) {
	t.Parallel()
	refused := func(t *testing.T) (b *bench, send activities.SendReportInput) {
		t.Helper()
		b = newBench(t)
		send = b.planned(t)
		b.far.answer, b.far.err = webhook.Answer{Status: 422}, metering.Errorf(metering.CodeProviderRefuse, "the webhook refused the message")
		batch := activities.BatchInput{TenantID: b.tenant, Customers: []metering.CustomerID{b.customer}}
		require.Equal(t, batch.Customers, run[activities.SyncBatchResult](t, b, b.do.SyncBatch, batch).Failed)
		require.NotEmpty(t, b.far.bodies)
		require.Equal(t, billing.Planned, b.state(t, send.ReportID))
		return b, send
	}
	t.Run("its own run", func(t *testing.T) {
		t.Parallel()
		b, send := refused(t)
		require.Equal(t, billing.Rejected, run[activities.SendReportResult](t, b, b.do.SendReport, send).State)
	})
	t.Run("a new receiver", func(t *testing.T) {
		t.Parallel()
		b, _ := refused(t)
		b.far.answer, b.far.err = webhook.Answer{Status: 204}, nil
		b.useProvider(t, "https://other.example.com/")
		run[activities.SendReportResult](t, b, b.do.SendReport, b.planned(t))
		require.Equal(t, "5", b.stated(t))
	})
}

// stated returns the usage of the meter in the last statement that was sent.
func (b *bench) stated(t *testing.T) string {
	t.Helper()
	var message metering.MessageOf[webhook.Statement]
	require.NoError(t, json.Unmarshal(b.far.bodies[len(b.far.bodies)-1], &message))
	require.Len(t, message.Data.Meters, 1)
	return message.Data.Meters[0].Usage.String()
}

// TestReportMissingFromSummariesForADayIsNotSentAgain checks that a report that Stripe's summaries do not show within a
// day is not sent again. Only the final invoice shows whether Stripe has dropped it.
func TestReportMissingFromSummariesForADayIsNotSentAgain(t *testing.T) {
	t.Parallel()
	s := newRegular(t)
	s.ingest("delta", "5")
	s.fake.Behave(stripetest.Behaviour{Mode: stripetest.Stale, Times: 1000})
	require.Equal(t, 1, s.report())

	_, err := s.conn.Exec(t.Context(), `update billing_reports set decided_at = decided_at - interval '1 day' where tenant_id = $1 and state = 'accepted'`, s.tenant)
	require.NoError(t, err)
	require.Zero(t, s.report())
	require.Equal(t, "5", s.fake.Quantity("si_delta").String())
}

// TestUsageThatStripeDropsIsChargedAfterInvoiceIsFinal checks that usage that Stripe accepted and dropped is charged
// after the invoice is final. Only the final invoice shows that Stripe dropped it.
func TestUsageThatStripeDropsIsChargedAfterInvoiceIsFinal(t *testing.T) {
	t.Parallel()
	s := newRegular(t)
	s.ingest("delta", "5")
	s.fake.Behave(stripetest.Behaviour{Mode: stripetest.Drop, Times: 1, Path: "/v1/billing/meter_events"})
	require.Equal(t, 1, s.report())
	s.ingest("delta", "2")
	require.Equal(t, 1, s.report())
	s.invoice(nil)
	lines := s.fake.State().Accounts[0].Invoices[0].Lines
	of := slices.IndexFunc(lines, func(l stripetest.LineState) bool { return l.Item == "si_delta" })
	require.Equal(t, "2", lines[of].Quantity.String())
	require.Empty(t, s.fake.State().Accounts[0].Pending)

	s.fake.Advance(72 * time.Hour)
	s.read()
	s.closePeriods(nil)
	s.quiesce(nil)
	pending := s.fake.State().Accounts[0].Pending
	require.Len(t, pending, 1)
	require.Equal(t, "5000000", pending[0].Amount.String())
	var found string
	require.NoError(t, s.conn.QueryRow(t.Context(), `
		select format('%s of %s are invoiced: %s, %s', invoiced, reported, state, reason)
		from billing_reconciliations
		where tenant_id = $1
		  and reported > 0`, s.tenant).Scan(&found))
	require.Equal(t, "2 of 7 are invoiced: carried, not_billed", found)
	s.quiesce(nil)
	require.Len(t, s.fake.State().Accounts[0].Pending, 1, "once")
}

// TestReadProviderWithCountsReadsOnlySummaries checks that ReadProvider reads only summaries if Counts is set.
func TestReadProviderWithCountsReadsOnlySummaries(t *testing.T) {
	t.Parallel()
	s := newRegular(t)
	s.ingest("delta", "5")
	require.Equal(t, 1, s.report())
	before := len(s.fake.State().Requests)
	value, err := s.ExecuteActivity(s.do.ReadProvider, activities.ReadProviderInput{CustomerInput: s.customerInput(), Counts: true})
	require.NoError(t, err)
	var read activities.ReadProviderResult
	require.NoError(t, value.Get(&read))
	require.Equal(t, activities.ReadProviderResult{Counted: 1}, read)
	for _, request := range s.fake.State().Requests[before:] {
		require.Contains(t, request.Path, "summaries")
	}
}

// TestDeletedTargetDoesNotStopReadOfCustomer reads a customer with an accepted report to a subscription item that Stripe
// does not know any more.
func TestDeletedTargetDoesNotStopReadOfCustomer(t *testing.T) {
	t.Parallel()
	s := newRegular(t)
	s.ingest("record", "5")
	summaries := func(status, times int) {
		s.fake.Behave(stripetest.Behaviour{Status: status, Times: times, Path: "/v1/subscription_items/si_record/usage_record_summaries"})
	}
	summaries(http.StatusInternalServerError, 10)
	require.Equal(t, 1, s.report())
	read := func() (result activities.ReadProviderResult) {
		value, err := s.ExecuteActivity(s.do.ReadProvider, activities.ReadProviderInput{CustomerInput: s.customerInput()})
		require.NoError(t, err)
		require.NoError(t, value.Get(&result))
		return result
	}
	summaries(http.StatusNotFound, 1)
	require.Equal(t, activities.ReadProviderResult{}, read())
	require.Equal(t, activities.ReadProviderResult{Counted: 1}, read())
}

// TestReadInvoiceReturnsRefusalOfKey reads the invoice of an event. A refusal of the API key is a result, and a refusal
// of the invoice is an error.
func TestReadInvoiceReturnsRefusalOfKey(t *testing.T) {
	t.Parallel()
	s := newRegular(t)
	s.read()
	event := s.storeEvent("in_unknown")
	read := func(status int) (invoice activities.ReadInvoiceResult, err error) {
		s.fake.Behave(stripetest.Behaviour{Status: status, Times: 1, Path: "/v1/invoices"})
		value, err := s.ExecuteActivity(s.do.ReadInvoice, event)
		if err != nil {
			return invoice, err
		}
		return invoice, value.Get(&invoice)
	}
	for _, status := range []int{http.StatusUnauthorized, http.StatusForbidden} {
		invoice, err := read(status)
		require.NoError(t, err)
		require.Contains(t, invoice.Refused, "save another key")
	}
	_, err := read(http.StatusNotFound)
	require.ErrorContains(t, err, "Stripe refused the request: 404")
}

// newRegular returns a subscriber for tests with a fixed order of steps.
func newRegular(t *testing.T) *subscriber {
	t.Helper()
	store := dbtest.Open(t)
	writer := store.NewWriter(dbtest.WriterOptions)
	t.Cleanup(writer.Close)
	s, stop := newSubscriber(t, store, writer, dbtest.Conn(t))
	t.Cleanup(stop)
	return s
}

// ingest ingests usage of a meter from one minute ago.
func (s *subscriber) ingest(meter, value string) {
	s.Helper()
	_, err := s.writer.Ingest(s.Context(), s.tenant, []metering.Event{dbtest.Event(s, meter, "acme", metering.Instant(s.fake.Now().Add(-time.Minute)), value, "", "")})
	require.NoError(s, err)
}

// report runs one pass without failures, and returns the number of accepted reports.
func (s *subscriber) report() (sent int) {
	s.read()
	for _, report := range s.planned(true) {
		require.True(s, s.sent(report))
		sent++
	}
	return sent
}
