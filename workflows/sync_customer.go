package workflows

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// syncRequested tells a SyncCustomer run that a request row was committed.
const syncRequested = "sync-requested"

// passesPerRun bounds a run's history where requests keep coming.
const passesPerRun = 200

// SyncCustomerInput names the customer. Unindexed says that the search
// attributes are not registered.
type SyncCustomerInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	CustomerID metering.CustomerID `json:"customer_id"`
	Unindexed  bool                `json:"unindexed"`
	Hold       []metering.MeterID  `json:"hold,omitempty"` // what operators have asked an earlier part of the run to skip
	Paused     bool                `json:"paused,omitempty"`
}

// SyncCustomerResult is what a run did.
type SyncCustomerResult struct {
	Passes int `json:"passes"`
	Sent   int `json:"sent"` // snapshots or entries
}

// SyncCustomer brings a customer's usage to the billing provider, once for all
// requests that are open, and again for those that come while it reads.
//
// A request is a committed row before it is a signal. A pass takes all rows
// first and reads the totals after that, so that every answer comes from a
// pass that began after its request; the run ends only when no row and no
// signal is left.
func SyncCustomer(ctx workflow.Context, in SyncCustomerInput) (SyncCustomerResult, error) {
	s := syncCustomer{SyncCustomerInput: in, requests: workflow.GetSignalChannel(ctx, syncRequested)}
	s.skipped, s.paused = in.Hold, in.Paused
	if err := errors.Join(s.heed(ctx), s.heedSkips(ctx)); err != nil {
		return s.result, err
	}
	return s.run(ctx)
}

type syncCustomer struct {
	SyncCustomerInput
	operators
	requests workflow.ReceiveChannel
	result   SyncCustomerResult
	problem  string   // of the last pass
	progress []string // rows of the table that operators see
}

func (s *syncCustomer) run(ctx workflow.Context) (SyncCustomerResult, error) {
	for {
		drain(s.requests) // the pass takes every request row
		more, err := s.pass(ctx)
		if err != nil && !errors.Is(err, errLongHistory) {
			return s.result, err
		}
		if !more && s.requests.Len() == 0 {
			return s.finish(ctx)
		}
		if s.result.Passes >= passesPerRun || longHistory(ctx) {
			drain(s.requests)
			s.Hold, s.Paused = s.skipped, s.paused
			return s.result, workflow.NewContinueAsNewError(ctx, SyncCustomer, s.SyncCustomerInput)
		}
	}
}

func (s *syncCustomer) finish(ctx workflow.Context) (SyncCustomerResult, error) {
	if s.problem == "" {
		return s.result, s.index(ctx, outcomeAttribute.ValueSet(succeeded))
	}
	if err := s.index(ctx, outcomeAttribute.ValueSet(failed)); err != nil {
		return s.result, err
	}
	return s.result, temporal.NewNonRetryableApplicationError(s.problem, "sync_failed", nil)
}

// pass answers the open requests. More says that others have come since.
func (s *syncCustomer) pass(ctx workflow.Context) (more bool, err error) {
	var begun activities.BeginSyncResult
	err = workflow.ExecuteActivity(storing(ctx, "take the open requests"), do.BeginSync,
		activities.BeginSyncInput{TenantID: s.TenantID, CustomerID: s.CustomerID}).Get(ctx, &begun)
	if err != nil || len(begun.Syncs) == 0 {
		return false, err
	}
	s.result.Passes++
	answer, interrupted := s.bring(ctx, begun)
	if errors.Is(interrupted, errLongHistory) {
		return true, interrupted // the requests stay with the next run
	}
	if interrupted != nil {
		answer.Problem = "the sync was interrupted; sync again"
		ctx, _ = workflow.NewDisconnectedContext(ctx)
	}
	s.problem = answer.Problem
	answer.TenantID, answer.CustomerID, answer.Syncs = s.TenantID, s.CustomerID, begun.Syncs
	var finished activities.FinishSyncResult
	err = workflow.ExecuteActivity(storing(ctx, "answer the requests"), do.FinishSync, answer).Get(ctx, &finished)
	if interrupted != nil {
		err = interrupted
	}
	return finished.More, err
}

// bring tells the provider what it has not been told.
func (s *syncCustomer) bring(ctx workflow.Context, begun activities.BeginSyncResult) (activities.FinishSyncInput, error) {
	if begun.Statements {
		return s.send(ctx, begun.After)
	}
	return s.tell(ctx, begun)
}

// send tells the provider what it has not been told, one snapshot at a time.
// What is refused for one period does not hold back the others. Its error is
// one that no answer to the requests can explain.
func (s *syncCustomer) send(ctx workflow.Context, after int64) (answer activities.FinishSyncInput, err error) {
	for {
		if err := s.hold(ctx, func(state string) { s.show(ctx, "| run | |", state) }); err != nil {
			return answer, err
		}
		var prepared activities.PrepareSnapshotResult
		err := workflow.ExecuteActivity(storing(ctx, "read totals, write the next snapshot"), do.PrepareSnapshot,
			activities.PrepareSnapshotInput{TenantID: s.TenantID, CustomerID: s.CustomerID, After: after, Hold: s.skipped}).Get(ctx, &prepared)
		if _, message, ok := problemOf(err); ok {
			answer.Problem = message
			return answer, nil
		}
		if err != nil {
			return answer, err
		}
		if prepared.Send == nil {
			answer.Snapshots = append(answer.Snapshots, prepared.UpToDate...)
			answer.Skipped = prepared.Skipped
			return answer, nil
		}
		end, err := s.deliver(ctx, *prepared.Send)
		if err != nil {
			return answer, err
		}
		if end.problem != "" {
			answer.Problem = end.problem
			answer.Snapshots = append(answer.Snapshots, prepared.Send.ID)
		}
		if end.unsettled {
			return answer, nil
		}
	}
}

// ending is what came of a snapshot. The problem says what an operator has to do.
type ending struct {
	problem   string
	unsettled bool // it stays the next one to send
}

// deliver sends one snapshot until the provider has decided on it, and records
// the decision.
func (s *syncCustomer) deliver(ctx workflow.Context, snapshot activities.Snapshot) (ending, error) {
	if err := s.index(ctx, periodAttribute.ValueSet(snapshot.PeriodStart.Format(time.DateOnly))); err != nil {
		return ending{}, err
	}
	s.report(ctx, snapshot, "sending")
	name := fmt.Sprintf("snapshot %d, period from %s", snapshot.Sequence, snapshot.PeriodStart.Format(time.DateOnly))
	var answer activities.DeliverSnapshotResult
	err := s.await(ctx, snapshot.Deadline, "send "+name, do.DeliverSnapshot,
		activities.DeliverSnapshotInput{TenantID: s.TenantID, SnapshotID: snapshot.ID}, &answer,
		func(state string) { s.report(ctx, snapshot, state) })
	code, refusal, refused := problemOf(err)
	switch {
	case refused && code == string(metering.CodeConflict):
		s.report(ctx, snapshot, "overtaken: "+refusal)
		return ending{}, nil // it was settled or its account replaced meanwhile: preparing again finds what is left
	case refused && code != string(metering.CodeProviderRefuse):
		s.report(ctx, snapshot, refusal)
		return ending{refusal, true}, nil
	case temporal.IsCanceledError(err) || errors.Is(err, errLongHistory):
		return ending{}, err
	case err != nil && !refused: // what is tried again ends only when its time is over
		s.report(ctx, snapshot, "no answer until the deadline")
		return ending{"the provider did not answer until the period's deadline; sync again once it does", true}, nil
	}
	err = workflow.ExecuteActivity(storing(ctx, "settle "+name), do.SettleSnapshot, activities.SettleSnapshotInput{
		TenantID: s.TenantID, SnapshotID: snapshot.ID, Answer: answer.Answer, Refusal: refusal,
	}).Get(ctx, nil)
	if err != nil {
		return ending{}, err
	}
	if refused {
		s.report(ctx, snapshot, "refused: "+refusal)
		return ending{problem: refusal}, nil
	}
	s.result.Sent++
	s.report(ctx, snapshot, "acknowledged: "+answer.Answer)
	return ending{}, nil
}

// silence is how long a provider may take before a new request makes the run
// try again at once: until then the first attempt may still be under way.
const silence = 30 * time.Second

// await waits for the provider's decision. The activity tries again by itself,
// after longer and longer pauses; who asks for a sync meanwhile need not wait
// for the pause to end.
func (s *syncCustomer) await(ctx workflow.Context, deadline time.Time, summary string, call, input, answer any, show func(state string)) error {
	for {
		if err := s.hold(ctx, show); err != nil {
			return err
		}
		s.forget()
		began, asked := workflow.Now(ctx), false
		trying, stop := workflow.WithCancel(calling(ctx, deadline, summary))
		answered := workflow.ExecuteActivity(trying, call, input)
		for !answered.IsReady() && !asked {
			workflow.NewSelector(ctx).
				AddFuture(answered, func(workflow.Future) {}).
				AddReceive(s.requests, func(requests workflow.ReceiveChannel, _ bool) {
					requests.Receive(ctx, nil) // its row is what the next pass goes by
					asked = workflow.Now(ctx).Sub(began) > silence
				}).
				AddReceive(s.asked, func(updates workflow.ReceiveChannel, _ bool) {
					updates.Receive(ctx, nil)
					asked = true
				}).
				Select(ctx)
			if !answered.IsReady() && longHistory(ctx) {
				stop()
				return errLongHistory
			}
		}
		if answered.IsReady() {
			return answered.Get(ctx, answer)
		}
		stop()
		if !s.paused {
			show("sending again, as was asked")
		}
	}
}

// hold is awaitResume, visibly.
func (s *syncCustomer) hold(ctx workflow.Context, show func(state string)) error {
	if !s.paused {
		return nil
	}
	show("paused by an operator")
	err := s.awaitResume(ctx)
	if err == nil {
		show("resumed by an operator")
	}
	return err
}

// report shows operators where a snapshot stands.
func (s *syncCustomer) report(ctx workflow.Context, snapshot activities.Snapshot, state string) {
	s.show(ctx, fmt.Sprintf("| %d | %s to %s |", snapshot.Sequence,
		snapshot.PeriodStart.Format(time.DateOnly), snapshot.PeriodEnd.Format(time.DateOnly)), state)
}

// show keeps the run's latest steps before the operators' eyes.
func (s *syncCustomer) show(ctx workflow.Context, what, state string) {
	const shown = 20
	row := what + " " + state + " |"
	last := len(s.progress) - 1
	if last >= 0 && strings.HasPrefix(s.progress[last], what) {
		s.progress[last] = row
	} else {
		s.progress = append(s.progress, row)
	}
	s.progress = s.progress[max(0, len(s.progress)-shown):]
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("Pass %d\n\n| what | period | state |\n|---|---|---|\n%s\n",
		s.result.Passes, strings.Join(s.progress, "\n")))
}

func (s *syncCustomer) index(ctx workflow.Context, update temporal.SearchAttributeUpdate) error {
	if s.Unindexed {
		return nil
	}
	return workflow.UpsertTypedSearchAttributes(ctx, update)
}
