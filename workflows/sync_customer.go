package workflows

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// syncRequested tells a SyncCustomer run that a request row was committed.
const syncRequested = "sync-requested"

// Interrupted is the error of a sync whose run was cancelled.
const Interrupted = "the sync was interrupted; sync again"

// passesPerRun bounds a run's history where requests keep coming.
const passesPerRun = 200

// SyncCustomerInput names the customer.
type SyncCustomerInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	CustomerID metering.CustomerID `json:"customer_id"`
	Excluded   []metering.MeterID  `json:"excluded,omitempty"` // what operators have asked an earlier part of the run to leave out
	Paused     bool                `json:"paused,omitempty"`
}

// SyncCustomerResult is what a run did.
type SyncCustomerResult struct {
	Passes int `json:"passes"`
	Sent   int `json:"sent"` // reports
}

// SyncCustomer brings a customer's usage to the billing provider, once for all
// requests that are open, and again for those that come meanwhile.
//
// A request is a committed row before it is a signal. A pass takes all rows
// first and plans after that, so that every answer comes from a pass that began
// after its request; the run ends only when no row and no signal is left. One that
// is cancelled answers what it has taken, and leaves what came since to another.
func SyncCustomer(ctx workflow.Context, in SyncCustomerInput) (SyncCustomerResult, error) {
	s := syncCustomer{SyncCustomerInput: in, requests: workflow.GetSignalChannel(ctx, syncRequested)}
	s.excluded, s.paused = in.Excluded, in.Paused
	if err := errors.Join(s.heed(ctx, in.TenantID), s.heedExclusions(ctx, in.TenantID)); err != nil {
		return s.result, err
	}
	for {
		drain(s.requests) // the pass takes every request row
		more, err := s.pass(ctx)
		err = answered(ctx, err)
		if temporal.IsCanceledError(err) && (more || s.requests.Len() > 0) {
			s.excluded, s.paused = nil, false
			return s.result, s.leave(ctx)
		}
		if err != nil && !errors.Is(err, errLongHistory) {
			return s.result, err
		}
		if !more && s.requests.Len() == 0 {
			return s.finish(ctx)
		}
		if s.result.Passes >= passesPerRun || longHistory(ctx) {
			return s.result, s.leave(ctx)
		}
	}
}

// leave leaves the requests that are open to another run.
func (s *syncCustomer) leave(ctx workflow.Context) error {
	drain(s.requests)
	s.Excluded, s.Paused = s.excluded, s.paused
	return workflow.NewContinueAsNewError(ctx, SyncCustomer, s.SyncCustomerInput)
}

type syncCustomer struct {
	SyncCustomerInput
	operators
	requests workflow.ReceiveChannel
	result   SyncCustomerResult
	page     string   // of the customer in the API
	failure  string   // of the last pass
	waits    bool     // the customer is paused: the requests stay open for the run that begins when it is resumed
	progress []string // rows of the table that operators see
}

// pass takes the open requests, brings the customer's usage to the provider
// and answers them. more says that others have come since.
func (s *syncCustomer) pass(ctx workflow.Context) (more bool, err error) {
	customer := activities.CustomerInput{TenantID: s.TenantID, CustomerID: s.CustomerID}
	var begun activities.BeginSyncResult
	err = workflow.ExecuteActivity(storing(ctx, "take over the open sync requests"), do.BeginSync, customer).Get(ctx, &begun)
	s.waits, s.page = begun.Paused && begun.Requests == 0, begun.Page
	if err != nil || begun.Requests == 0 {
		return false, err
	}
	s.result.Passes++
	passed, interrupted := activities.Pass(&syncSteps{syncCustomer: s, ctx: ctx, customer: customer, begun: begun}, begun.Reads)
	s.result.Sent += passed.Sent
	if errors.Is(interrupted, errLongHistory) {
		return true, interrupted // the requests stay with the next run
	}
	if errors.Is(interrupted, errPaused) {
		s.waits = true
		return false, nil
	}
	if s.failure = passed.Failure; interrupted != nil {
		s.failure = Interrupted
		drain(s.requests) // FinishSync says whether their rows are still open
		ctx, _ = workflow.NewDisconnectedContext(ctx)
	}
	var finished activities.FinishSyncResult
	err = workflow.ExecuteActivity(storing(ctx, "record the result of the sync"), do.FinishSync, activities.FinishSyncInput{
		CustomerInput: customer, PassID: begun.PassID, Error: s.failure, Reports: passed.Reports,
	}).Get(ctx, &finished)
	if interrupted != nil {
		err = interrupted
	}
	s.showUnresolved(ctx, finished.Unresolved)
	return finished.More, err
}

// showUnresolved shows what the invoices of closed periods do not agree with.
func (s *syncCustomer) showUnresolved(ctx workflow.Context, all []activities.Unresolved) {
	for _, u := range all {
		state := string(u.State)
		if u.Invoiced != nil {
			state = fmt.Sprintf("%s: invoices bill %s of %s; %s", u.State, u.Invoiced, u.Units, u.Reason)
		}
		s.show(ctx, fmt.Sprintf("| reconciliation of %s | %s to %s |", u.MeterID, u.PeriodStart.Format(time.DateOnly), u.PeriodEnd.Format(time.DateOnly)), state)
	}
}

// errPaused ends a pass because an operator has paused the customer.
var errPaused = errors.New("the customer is paused")

func (s *syncCustomer) finish(ctx workflow.Context) (SyncCustomerResult, error) {
	if s.waits {
		s.show(ctx, "| run | |", "the customer is paused: its syncs wait until it is resumed")
		return s.result, workflow.UpsertTypedSearchAttributes(ctx, outcomeAttribute.ValueSet(paused))
	}
	if s.failure == "" {
		return s.result, workflow.UpsertTypedSearchAttributes(ctx, outcomeAttribute.ValueSet(succeeded))
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, outcomeAttribute.ValueSet(failed)); err != nil {
		return s.result, err
	}
	return s.result, temporal.NewNonRetryableApplicationError(s.failure, "sync_failed", nil)
}

// syncSteps are those of a pass over the customer, each an activity.
type syncSteps struct {
	*syncCustomer
	ctx      workflow.Context
	customer activities.CustomerInput
	begun    activities.BeginSyncResult
	readAt   time.Time // when the provider's side was read; zero: it was not
}

const (
	// readFor is how long what the customer is at the provider is taken for known.
	readFor = 5 * time.Minute
	// readingLimit is how long an outage is waited out before there is a period to go by.
	readingLimit = 72 * time.Hour
)

// Read reads what the customer is at the provider, and where its usage goes.
func (s *syncSteps) Read(again bool) (failure string, err error) {
	const row = "| provider | |"
	now := workflow.Now(s.ctx)
	if !again && !s.readAt.IsZero() && now.Sub(s.readAt) < readFor {
		return "", nil
	}
	s.show(s.ctx, row, "reading")
	err = s.await(s.ctx, now.Add(readingLimit), "read the customer at the provider", do.ReadProvider,
		activities.ReadProviderInput{CustomerInput: s.customer}, nil, func(state string) { s.show(s.ctx, row, state) })
	if _, message, refused := failureOf(err); refused {
		s.show(s.ctx, row, message)
		return message, nil
	}
	if temporal.IsCanceledError(err) || errors.Is(err, errLongHistory) {
		return "", err
	}
	if err != nil {
		return "the provider did not answer; sync again once it answers", nil //nolint:nilerr // the requests are answered with it
	}
	s.readAt = now
	s.show(s.ctx, row, "read")
	return "", nil
}

// Plan has the next reports written down.
func (s *syncSteps) Plan() (plan activities.PlanReportsResult, failure string, err error) {
	if err := s.wait(s.ctx, func(state string) { s.show(s.ctx, "| run | |", state) }); err != nil {
		return plan, "", err
	}
	err = workflow.ExecuteActivity(storing(s.ctx, "plan and store the next reports"), do.PlanReports, activities.PlanReportsInput{
		CustomerInput: s.customer, After: s.begun.After, Excluded: s.excluded, PassID: s.begun.PassID,
	}).Get(s.ctx, &plan)
	code, message, refused := failureOf(err)
	switch {
	case code == string(metering.CodePaused):
		return plan, "", errPaused
	case refused:
		return plan, message, nil
	}
	return plan, "", err
}

// Send sends one report until the provider has decided on it.
func (s *syncSteps) Send(r activities.Report) (activities.Ending, error) {
	if slices.Contains(s.excluded, r.MeterID) {
		return activities.Ending{Left: true}, nil
	}
	if err := workflow.UpsertTypedSearchAttributes(s.ctx, periodAttribute.ValueSet(r.PeriodStart.Format(time.DateOnly))); err != nil {
		return activities.Ending{}, err
	}
	name := nameOf(r)
	show := func(state string) {
		s.show(s.ctx, fmt.Sprintf("| %s | %s to %s |", name, r.PeriodStart.Format(time.DateOnly), r.PeriodEnd.Format(time.DateOnly)), state)
	}
	show("sending")
	var sent activities.SendReportResult
	err := s.await(s.ctx, r.Deadline, "send "+name, do.SendReport,
		activities.SendReportInput{TenantID: s.TenantID, ReportID: r.ID}, &sent, show)
	code, message, refused := failureOf(err)
	switch {
	case refused && code == string(metering.CodeConflict):
		show("no longer needed: " + message)
		return activities.Ending{Refused: true}, nil // it was decided on or its connection replaced meanwhile: another plan finds what is left
	case code == string(metering.CodePaused):
		show("waits until the customer is resumed")
		return activities.Ending{}, errPaused
	case refused:
		show(message)
		return activities.Ending{Failure: message}, nil
	case temporal.IsCanceledError(err) || errors.Is(err, errLongHistory):
		return activities.Ending{}, err
	case err != nil: // what is tried again ends only when its time is over
		show("the provider did not answer before the deadline")
		return activities.Ending{Failure: "the provider did not answer before the period's deadline; sync again once it answers", Stop: true}, nil //nolint:nilerr // the requests are answered with it
	}
	show(fmt.Sprintf("%s: %s", sent.State, sent.Response))
	ending := activities.Ending{Accepted: sent.State == billing.Accepted, Refused: sent.State == billing.Rejected}
	if sent.Refused || sent.State == billing.InDoubt {
		ending.Failure = sent.Response
	}
	return ending, nil
}

// nameOf is what operators see of a report.
func nameOf(r activities.Report) string {
	switch r.Kind {
	case billing.StatementReport:
		return fmt.Sprintf("statement %d", r.Number)
	case billing.ChargeReport:
		return fmt.Sprintf("charge %d of %s for %s", r.Number, r.Quantity, r.MeterID)
	case billing.ActionReport:
		return fmt.Sprintf("invoice action %d: finalize the period's invoice", r.Number)
	}
	return fmt.Sprintf("quantity %d: %s through %s for %s", r.Number, r.Quantity, r.Method, r.MeterID)
}

// Count looks for what was accepted in what the provider has counted. What it
// does not find now, a later pass will.
func (s *syncSteps) Count() error {
	var read activities.ReadProviderResult
	err := workflow.ExecuteActivity(looking(s.ctx, "read the provider's counts"), do.ReadProvider,
		activities.ReadProviderInput{CustomerInput: s.customer, Counts: true}).Get(s.ctx, &read)
	if temporal.IsCanceledError(err) {
		return err
	}
	if err == nil && read.Counted+read.Behind > 0 {
		s.show(s.ctx, "| summaries | |", fmt.Sprintf("%d reports counted, %d not yet counted", read.Counted, read.Behind))
	}
	return nil
}

// silence is how long a provider may take before a new request makes the run
// try again at once: until then the first attempt may still be under way.
const silence = 30 * time.Second

// await waits for the provider's decision. The activity tries again by itself,
// after longer and longer pauses; who asks for a sync meanwhile need not wait
// for the pause to end.
func (s *syncCustomer) await(ctx workflow.Context, deadline time.Time, summary string, call, input, answer any, show func(state string)) error {
	for {
		if err := s.wait(ctx, show); err != nil {
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
			show("sending again on request")
		}
	}
}

// wait is awaitResume, visibly.
func (s *syncCustomer) wait(ctx workflow.Context, show func(state string)) error {
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
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("Pass %d of %s\n\n| step | period | state |\n|---|---|---|\n%s\n",
		s.result.Passes, linked(s.CustomerID, s.page), strings.Join(s.progress, "\n")))
}

// SyncCustomerID is the workflow id of a customer's sync: one run at a time.
func SyncCustomerID(tenant metering.TenantID, customer metering.CustomerID) string {
	return fmt.Sprintf("sync-customer/%d/%d", tenant, customer)
}

func syncCustomerStart(tenant metering.TenantID, customer metering.CustomerID, trigger metering.Trigger) start {
	s := start{
		workflow: SyncCustomer,
		input:    SyncCustomerInput{TenantID: tenant, CustomerID: customer},
		id:       SyncCustomerID(tenant, customer),
		summary:  fmt.Sprintf("Sync the usage of %s", customer),
		details: fmt.Sprintf("Reports the usage of %[2]s to the billing provider of %[1]s, one stored report at a time. "+
			"Cancelling the run fails the open sync requests; reports that were sent stay recorded. %[3]s", tenant, customer, inAPI(customer)),
		tenant: tenant,
		attributes: []temporal.SearchAttributeUpdate{
			customerAttribute.ValueSet(customer.String()), triggerAttribute.ValueSet(string(trigger)), outcomeAttribute.ValueSet(running),
		},
		priority: interactive,
		signal:   syncRequested,
	}
	if trigger == metering.Scheduled {
		s.priority = background
	}
	return s
}

// StartSyncCustomer makes sure that a pass begins after now, in the run that
// is open or in a new one. The request's row is committed before.
func StartSyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, trigger metering.Trigger) error {
	return syncCustomerStart(tenant, customer, trigger).by(ctx, c)
}

// RestartSyncCustomer is StartSyncCustomer for requests that nobody waits for
// any longer. It leaves a run that is open alone, because that takes every
// request before it ends.
func RestartSyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID) error {
	s := syncCustomerStart(tenant, customer, metering.Scheduled)
	s.signal = ""
	return s.by(ctx, c)
}
