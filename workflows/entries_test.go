package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// ledger is a world whose provider is Stripe: two meters, of each of which five
// units have to be told.
type ledger struct {
	*world
	entries  []activities.Entry
	settled  map[metering.MeterID][]activities.SettleEntryInput
	sent     []metering.MeterID
	reads    int
	prepared []activities.PrepareEntriesInput

	read    func() error
	prepare func() error
	send    func(meter metering.MeterID, attempt int) (activities.SendEntryResult, error)
	confirm func() (activities.ConfirmEntriesResult, error)
}

var taken5 = activities.SendEntryResult{Outcome: metering.EntryAcknowledged, Answer: "taken"}

func newLedger(t *testing.T) *ledger {
	t.Helper()
	l := &ledger{world: newWorld(t), settled: map[metering.MeterID][]activities.SettleEntryInput{}}
	for _, meter := range []metering.MeterID{7, 9} {
		l.entries = append(l.entries, activities.Entry{ID: uuid.New(), MeterID: meter, Method: "usage_record",
			Quantity: metering.MustDecimal("5"), PeriodStart: l.Now(), PeriodEnd: l.Now().AddDate(0, 1, 0), Deadline: l.deadline})
	}
	l.read, l.prepare = func() error { return nil }, func() error { return nil }
	l.send = func(metering.MeterID, int) (activities.SendEntryResult, error) { return taken5, nil }
	l.confirm = func() (activities.ConfirmEntriesResult, error) {
		return activities.ConfirmEntriesResult{Confirmed: len(l.settled)}, nil
	}
	l.quantities = true
	l.OnActivity(do.ReadItems, mock.Anything, activities.ReadItemsInput{TenantID: 1, CustomerID: 2}).Return(
		func(context.Context, activities.ReadItemsInput) error {
			l.reads++
			return activities.Failure(l.read())
		}).Maybe()
	l.OnActivity(do.PrepareEntries, mock.Anything, mock.Anything).Return(l.prepareEntries).Maybe()
	l.OnActivity(do.SendEntry, mock.Anything, mock.Anything).Return(l.sendEntry).Maybe()
	l.OnActivity(do.SettleEntry, mock.Anything, mock.Anything).Return(func(_ context.Context, in activities.SettleEntryInput) error {
		meter := l.meterOf(in.EntryID)
		l.settled[meter] = append(l.settled[meter], in)
		return nil
	}).Maybe()
	l.OnActivity(do.ConfirmEntries, mock.Anything, mock.Anything).Return(func(context.Context, activities.ConfirmEntriesInput) (activities.ConfirmEntriesResult, error) {
		confirmed, err := l.confirm()
		return confirmed, activities.Failure(err)
	}).Maybe()
	return l
}

func (l *ledger) meterOf(entry uuid.UUID) metering.MeterID {
	for _, e := range l.entries {
		if e.ID == entry {
			return e.MeterID
		}
	}
	return 0
}

// prepareEntries lists what is not settled, less what is held back.
func (l *ledger) prepareEntries(_ context.Context, in activities.PrepareEntriesInput) (activities.PrepareEntriesResult, error) {
	l.prepared = append(l.prepared, in)
	if err := l.prepare(); err != nil {
		return activities.PrepareEntriesResult{}, activities.Failure(err)
	}
	var result activities.PrepareEntriesResult
	for _, e := range l.entries {
		if len(l.settled[e.MeterID]) == 0 {
			result.Send = append(result.Send, e)
		}
	}
	return result, nil
}

func (l *ledger) sendEntry(_ context.Context, in activities.SendEntryInput) (activities.SendEntryResult, error) {
	meter, attempt := l.meterOf(in.EntryID), 1
	for _, m := range l.sent {
		if m == meter {
			attempt++
		}
	}
	l.sent = append(l.sent, meter)
	result, err := l.send(meter, attempt)
	return result, activities.Failure(err)
}

func TestEveryMeterIsToldOnceAndComparedWithWhatWasCounted(t *testing.T) {
	l := newLedger(t)
	l.request(0)
	result, err := l.run(t)
	require.NoError(t, err)
	require.Equal(t, workflows.SyncCustomerResult{Passes: 1, Sent: 2}, result)
	require.Equal(t, []metering.MeterID{7, 9}, l.sent)
	require.Equal(t, metering.EntryAcknowledged, l.settled[9][0].Outcome)
	require.Equal(t, []uuid.UUID{l.entries[0].ID, l.entries[1].ID}, l.finished[0].Entries)
	require.Empty(t, l.finished[0].Problem)
	details := detailsOf(t, l.TestWorkflowEnvironment)
	require.Contains(t, details, "| 5 of usage_record for mtr_7 |")
	require.Contains(t, details, "acknowledged: taken |")
	require.Contains(t, details, "2 confirmed, 0 behind |")
}

func TestWhatStripeRefusesForOneMeterHoldsNoOtherBack(t *testing.T) {
	for name, c := range map[string]struct {
		answer  func() (activities.SendEntryResult, error)
		problem string
		settled []activities.SettleEntryInput // of the meter, without its id
	}{
		"refused": {func() (activities.SendEntryResult, error) {
			return activities.SendEntryResult{}, metering.Errorf(metering.CodeProviderRefuse, "correct the item")
		}, "correct the item", []activities.SettleEntryInput{{Outcome: metering.EntryRejected, Answer: "correct the item"}}},
		"ambiguous": {func() (activities.SendEntryResult, error) {
			return activities.SendEntryResult{Outcome: metering.EntryAmbiguous, Answer: "look at Stripe"}, nil
		}, "look at Stripe", []activities.SettleEntryInput{{Outcome: metering.EntryAmbiguous, Answer: "look at Stripe"}}},
		"not sent at all": {func() (activities.SendEntryResult, error) {
			return activities.SendEntryResult{}, metering.Errorf(metering.CodeNoProvider, "no billing provider is configured")
		}, "no billing provider is configured", nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			l.send = func(meter metering.MeterID, _ int) (activities.SendEntryResult, error) {
				if meter == 7 {
					return c.answer()
				}
				return taken5, nil
			}
			l.request(0)
			_, err := l.run(t)
			require.ErrorContains(t, err, c.problem)
			require.Equal(t, []metering.MeterID{7, 9}, l.sent, "once in a pass")
			require.Equal(t, c.problem, l.finished[0].Problem)
			for i := range c.settled {
				c.settled[i].TenantID, c.settled[i].EntryID = 1, l.entries[0].ID
			}
			require.Equal(t, c.settled, l.settled[7])
			require.Equal(t, metering.EntryAcknowledged, l.settled[9][0].Outcome)
			require.Contains(t, detailsOf(t, l.TestWorkflowEnvironment), c.problem)
		})
	}
}

func TestWhereStripeDoesNotAnswerAllMetersWait(t *testing.T) {
	l := newLedger(t)
	back := l.Now().Add(10 * time.Minute)
	l.send = func(metering.MeterID, int) (activities.SendEntryResult, error) {
		if l.Now().Before(back) {
			return activities.SendEntryResult{}, down()
		}
		return taken5, nil
	}
	l.request(0)
	result, err := l.run(t)
	require.NoError(t, err)
	require.Equal(t, 2, result.Sent)
	require.Equal(t, metering.MeterID(9), l.sent[len(l.sent)-1])
	require.NotContains(t, l.sent[:len(l.sent)-1], metering.MeterID(9))

	l = newLedger(t)
	l.send = func(metering.MeterID, int) (activities.SendEntryResult, error) {
		return activities.SendEntryResult{}, down()
	}
	l.request(0)
	_, err = l.run(t)
	require.ErrorContains(t, err, "did not answer until the period's deadline")
	require.NotContains(t, l.sent, metering.MeterID(9))
	require.Empty(t, l.settled, "nobody knows whether it was taken")
	require.Equal(t, []uuid.UUID{l.entries[0].ID}, l.finished[0].Entries)
}

func TestAnEntryThatSomebodyElseSettledIsPreparedAgain(t *testing.T) {
	l := newLedger(t)
	l.send = func(meter metering.MeterID, _ int) (activities.SendEntryResult, error) {
		if meter != 7 {
			return taken5, nil
		}
		l.settled[7] = []activities.SettleEntryInput{{Outcome: metering.EntryAcknowledged}}
		return activities.SendEntryResult{}, metering.Errorf(metering.CodeConflict, "it is settled")
	}
	l.request(0)
	result, err := l.run(t)
	require.NoError(t, err)
	require.Equal(t, 1, result.Sent)
	require.Len(t, l.prepared, 2)
	require.Contains(t, detailsOf(t, l.TestWorkflowEnvironment), "overtaken: it is settled")
}

func TestItemsAreReadUntilStripeAnswersOrSaysNo(t *testing.T) {
	l := newLedger(t)
	l.read = func() error {
		if l.reads < 4 {
			return down()
		}
		return nil
	}
	l.request(0)
	_, err := l.run(t)
	require.NoError(t, err)
	require.Equal(t, 5, l.reads, "four for the first look, one to see that nothing is left")

	for problem, failure := range map[string]error{
		"correct the customer":                                 metering.Errorf(metering.CodeProviderRefuse, "correct the customer"),
		"the provider did not answer; sync again once it does": down(),
	} {
		l = newLedger(t)
		l.read = func() error { return failure }
		l.request(0)
		_, err = l.run(t)
		require.ErrorContains(t, err, problem)
		require.Equal(t, problem, l.finished[0].Problem)
		require.Empty(t, l.prepared)
	}
}

func TestALinkThatChangesIsReadAgain(t *testing.T) {
	for conflicts, reads := range map[int]int{2: 4, 3: 3} {
		l := newLedger(t)
		left := conflicts
		l.prepare = func() error {
			if left--; left >= 0 {
				return metering.Errorf(metering.CodeConflict, "the customer was linked to another")
			}
			return nil
		}
		l.request(0)
		_, err := l.run(t)
		require.Equal(t, reads, l.reads)
		if conflicts == 3 {
			require.ErrorContains(t, err, "the customer was linked to another")
			continue
		}
		require.NoError(t, err)
	}
	l := newLedger(t)
	l.prepare = func() error { return metering.Errorf(metering.CodeNoProvider, "no billing provider is configured") }
	l.request(0)
	_, err := l.run(t)
	require.ErrorContains(t, err, "no billing provider is configured")
	require.Equal(t, 1, l.reads)
}

func TestAMeterThatOperatorsSkipIsNotTold(t *testing.T) {
	l := newLedger(t)
	back := l.Now().Add(time.Hour)
	l.send = func(metering.MeterID, int) (activities.SendEntryResult, error) {
		if l.Now().Before(back) {
			return activities.SendEntryResult{}, metering.Errorf(metering.CodeProviderDown, "away")
		}
		return taken5, nil
	}
	l.request(0)
	l.ask(t, time.Minute, "pause")
	l.ask(t, 2*time.Minute, "skip-meter", workflows.SkipMeterInput{MeterID: 9}) // while the first one waits
	l.ask(t, time.Hour, "resume")
	_, err := l.run(t)
	require.NoError(t, err)
	require.NotContains(t, l.sent, metering.MeterID(9))
	require.Equal(t, []metering.MeterID{9}, l.prepared[len(l.prepared)-1].Hold)
	require.Contains(t, l.settled, metering.MeterID(7))
}

func TestCancellingAnswersTheRequestsWhereverItMeetsThem(t *testing.T) {
	for name, stop := range map[string]func(l *ledger){
		"reading items": func(l *ledger) { l.read = down },
		"sending": func(l *ledger) {
			l.send = func(metering.MeterID, int) (activities.SendEntryResult, error) {
				return activities.SendEntryResult{}, down()
			}
		},
		"preparing": func(l *ledger) {
			l.prepare = func() error { return metering.Errorf(metering.CodeUnavailable, "the database is not available") }
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			stop(l)
			l.request(0)
			l.RegisterDelayedCallback(l.CancelWorkflow, 10*time.Second)
			_, err := l.run(t)
			require.True(t, temporal.IsCanceledError(err), "%v", err)
			require.Equal(t, "the sync was interrupted; sync again", l.finished[0].Problem)
			require.Empty(t, l.settled)
		})
	}
}

func TestALongHistoryContinuesAsNewInTheMiddleOfEntries(t *testing.T) {
	for name, wait := range map[string]func(l *ledger){
		"reading items": func(l *ledger) { l.read = down },
		"sending": func(l *ledger) {
			l.send = func(metering.MeterID, int) (activities.SendEntryResult, error) {
				return activities.SendEntryResult{}, down()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger(t)
			wait(l)
			l.request(0)
			l.RegisterDelayedCallback(func() {
				l.SetContinueAsNewSuggested(true)
				l.SignalWorkflow("sync-requested", nil)
			}, 10*time.Second)
			l.ExecuteWorkflow(workflows.SyncCustomer, workflows.SyncCustomerInput{TenantID: 1, CustomerID: 2})
			require.True(t, workflow.IsContinueAsNewError(l.GetWorkflowError()), "%v", l.GetWorkflowError())
			require.Empty(t, l.finished, "the requests stay with the next run")
		})
	}
}

// What Stripe has counted is looked at; no sync fails for it.
func TestSummariesThatCannotBeReadFailNoSync(t *testing.T) {
	l := newLedger(t)
	l.confirm = func() (activities.ConfirmEntriesResult, error) { return activities.ConfirmEntriesResult{}, down() }
	l.request(0)
	result, err := l.run(t)
	require.NoError(t, err)
	require.Equal(t, 2, result.Sent)
	require.NotContains(t, detailsOf(t, l.TestWorkflowEnvironment), "confirmed")
}
