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
	"github.com/odometer-metering/odometer/billing/passes"
	"github.com/odometer-metering/odometer/metering"
)

// syncRequested signals a SyncCustomer run that a sync request was committed.
const syncRequested = "sync-requested"

// Interrupted is the error of a sync that ended because its run was canceled.
const Interrupted = "the sync was interrupted; sync again"

// passesPerRun bounds a run's history while new requests keep arriving.
const passesPerRun = 200

// SyncCustomerInput names the customer, and contains the state that a previous run passes on.
type SyncCustomerInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	CustomerID metering.CustomerID `json:"customer_id"`
	Excluded   []metering.MeterID  `json:"excluded,omitempty"` // meters that operators excluded in a previous run
	Paused     bool                `json:"paused,omitempty"`
}

// SyncCustomerResult counts the work of a run.
type SyncCustomerResult struct {
	Passes int `json:"passes"`
	Sent   int `json:"sent"` // accepted reports
}

// SyncCustomer reports a customer's usage to the billing provider. One pass answers all open
// requests. Requests that arrive during a pass cause another pass.
//
// A request's row is committed before the run is signalled. A pass first takes all open requests
// and then plans. Each request is therefore answered by a pass that began after the request. The
// run ends if no request and no signal is left, or if the customer is paused. A canceled run
// answers the requests that it has taken. If other requests have arrived since, it continues as a
// new run.
func SyncCustomer(ctx workflow.Context, in SyncCustomerInput) (SyncCustomerResult, error) {
	s := syncCustomer{SyncCustomerInput: in, requests: workflow.GetSignalChannel(ctx, syncRequested)}
	s.excluded, s.paused = in.Excluded, in.Paused
	if err := errors.Join(s.registerUpdateHandlers(ctx, in.TenantID), s.registerExclusionHandler(ctx, in.TenantID)); err != nil {
		return s.result, err
	}
	for {
		drain(s.requests) // the pass takes all committed requests, so their signals are not needed
		more, err := s.pass(ctx)
		err = awaitUpdateHandlers(ctx, err)
		if temporal.IsCanceledError(err) && (more || s.requests.Len() > 0) {
			s.excluded, s.paused = nil, false
			return s.result, s.continueAsNew(ctx)
		}
		if err != nil && !errors.Is(err, errLongHistory) {
			return s.result, err
		}
		if !more && s.requests.Len() == 0 {
			return s.finish(ctx)
		}
		if s.result.Passes >= passesPerRun || longHistory(ctx) {
			return s.result, s.continueAsNew(ctx)
		}
	}
}

// continueAsNew continues the workflow as a new run, which takes the open requests.
func (s *syncCustomer) continueAsNew(ctx workflow.Context) error {
	drain(s.requests)
	s.Excluded, s.Paused = s.excluded, s.paused
	return workflow.NewContinueAsNewError(ctx, SyncCustomer, s.SyncCustomerInput)
}

// syncCustomer is the state of a SyncCustomer run.
type syncCustomer struct {
	SyncCustomerInput
	operators
	requests workflow.ReceiveChannel
	result   SyncCustomerResult
	page     string   // the customer's URL in the API
	failure  string   // error of the last pass
	waits    bool     // the customer is paused: requests stay open for the run that starts after the pause
	progress []string // table rows for operators, at most 20
}

// pass takes the open requests, reports the customer's usage to the provider and answers the
// requests. more reports whether requests are open for another pass.
func (s *syncCustomer) pass(ctx workflow.Context) (more bool, err error) {
	customer := activities.CustomerInput{TenantID: s.TenantID, CustomerID: s.CustomerID}
	var begun activities.BeginSyncResult
	err = workflow.ExecuteActivity(shortStep(ctx, "take over the open sync requests"), do.BeginSync, customer).Get(ctx, &begun)
	s.waits, s.page = begun.Paused && begun.Requests == 0, begun.Page
	if err != nil || begun.Requests == 0 {
		return false, err
	}
	s.result.Passes++
	passed, interrupted := passes.Run(ctx, &syncSteps{syncCustomer: s, customer: customer, begun: begun}, begun.Reads)
	s.result.Sent += passed.Sent
	if errors.Is(interrupted, errLongHistory) {
		return true, interrupted // the next run answers the requests
	}
	if errors.Is(interrupted, errPaused) {
		s.waits = true
		return false, nil
	}
	if s.failure = passed.Failure; interrupted != nil {
		s.failure = Interrupted
		drain(s.requests) // FinishSync reports whether their rows are still open
		ctx, _ = workflow.NewDisconnectedContext(ctx)
	}
	var finished activities.FinishSyncResult
	err = workflow.ExecuteActivity(shortStep(ctx, "record the result of the sync"), do.FinishSync, activities.FinishSyncInput{
		CustomerInput: customer, PassID: begun.PassID, Error: s.failure, Reports: passed.Reports,
	}).Get(ctx, &finished)
	if interrupted != nil {
		err = interrupted
	}
	s.showUnresolved(ctx, finished.Unresolved)
	return finished.More, err
}

// showUnresolved shows the closed periods that the provider's invoices do not match.
func (s *syncCustomer) showUnresolved(ctx workflow.Context, all []activities.Unresolved) {
	for _, u := range all {
		state := string(u.State)
		if u.Invoiced != nil {
			state = fmt.Sprintf("%s: invoices bill %s of %s", u.State, u.Invoiced, u.Units)
		}
		if u.Message != "" {
			state += fmt.Sprintf("; %s. %s", u.Message, u.NextStep)
		}
		s.show(ctx, fmt.Sprintf("| reconciliation of %s | %s to %s |", u.MeterID, u.PeriodStart.Format(time.DateOnly), u.PeriodEnd.Format(time.DateOnly)), state)
	}
}

// errPaused ends a pass because an operator paused the customer.
var errPaused = errors.New("the customer is paused")

// finish records the outcome in the search attribute, and ends the run. The run fails if its last pass failed.
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

// syncSteps implements passes.Steps. Each step runs as activities of the workflow.
type syncSteps struct {
	*syncCustomer
	customer activities.CustomerInput
	begun    activities.BeginSyncResult
	readAt   time.Time // last read of the customer's state at the provider; zero: none yet
}

const (
	// readFor is the time for which Read reuses the last read of the customer's state at the
	// provider.
	readFor = 5 * time.Minute
	// readingLimit bounds the wait for a provider when no period's deadline is known.
	readingLimit = 72 * time.Hour
)

// Read reads the customer's state at the provider and the destination of each meter's usage.
// If force is false, it does nothing if the last read is less than readFor ago.
func (s *syncSteps) Read(ctx workflow.Context, force bool) (failure string, err error) {
	const row = "| provider | |"
	now := workflow.Now(ctx)
	if !force && !s.readAt.IsZero() && now.Sub(s.readAt) < readFor {
		return "", nil
	}
	s.show(ctx, row, "reading")
	err = s.callProvider(ctx, now.Add(readingLimit), "read the customer at the provider", do.ReadProvider,
		activities.ReadProviderInput{CustomerInput: s.customer}, nil, func(state string) { s.show(ctx, row, state) })
	if _, message, refused := failureOf(err); refused {
		s.show(ctx, row, message)
		return message, nil
	}
	if temporal.IsCanceledError(err) || errors.Is(err, errLongHistory) {
		return "", err
	}
	if err != nil {
		return "the provider did not answer; sync again once it answers", nil //nolint:nilerr // the requests are answered with it
	}
	s.readAt = now
	s.show(ctx, row, "read")
	return "", nil
}

// Plan plans and stores the next reports.
func (s *syncSteps) Plan(ctx workflow.Context) (plan passes.Plan, failure string, err error) {
	if err := s.waitIfPaused(ctx, func(state string) { s.show(ctx, "| run | |", state) }); err != nil {
		return plan, "", err
	}
	err = workflow.ExecuteActivity(shortStep(ctx, "plan and store the next reports"), do.PlanReports, activities.PlanReportsInput{
		CustomerInput: s.customer, After: s.begun.After, Excluded: s.excluded, PassID: s.begun.PassID,
	}).Get(ctx, &plan)
	code, message, refused := failureOf(err)
	switch {
	case code == string(metering.CodePaused):
		return plan, "", errPaused
	case refused:
		return plan, message, nil
	}
	return plan, "", err
}

// Send sends one report, and retries it until it is accepted, rejected or of unknown outcome, or its
// deadline has passed.
func (s *syncSteps) Send(ctx workflow.Context, r passes.Report) (passes.Ending, error) {
	if slices.Contains(s.excluded, r.MeterID) {
		return passes.Ending{Left: true}, nil
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, periodAttribute.ValueSet(r.PeriodStart.Format(time.DateOnly))); err != nil {
		return passes.Ending{}, err
	}
	name := nameOf(r)
	show := func(state string) {
		s.show(ctx, fmt.Sprintf("| %s | %s to %s |", name, r.PeriodStart.Format(time.DateOnly), r.PeriodEnd.Format(time.DateOnly)), state)
	}
	show("sending")
	var sent activities.SendReportResult
	err := s.callProvider(ctx, r.Deadline, "send "+name, do.SendReport,
		activities.SendReportInput{TenantID: s.TenantID, ReportID: r.ID}, &sent, show)
	code, message, refused := failureOf(err)
	switch {
	case refused && code == string(metering.CodeConflict):
		show("no longer needed: " + message)
		// The report was decided or its connection was replaced in the meantime. The next plan
		// contains the remaining usage.
		return passes.Ending{Refused: true}, nil
	case code == string(metering.CodePaused):
		show("waits until the customer is resumed")
		return passes.Ending{}, errPaused
	case refused:
		show(message)
		return passes.Ending{Failure: message}, nil
	case temporal.IsCanceledError(err) || errors.Is(err, errLongHistory):
		return passes.Ending{}, err
	case err != nil: // Temporal has retried until the ScheduleToCloseTimeout
		show("the provider did not answer before the deadline")
		return passes.Ending{Failure: "the provider did not answer before the period's deadline; sync again once it answers", Stop: true}, nil //nolint:nilerr // the requests are answered with it
	}
	show(fmt.Sprintf("%s: %s", sent.State, sent.Response))
	ending := passes.Ending{Accepted: sent.State == billing.Accepted, Refused: sent.State == billing.Rejected}
	if sent.Refused || sent.State == billing.InDoubt {
		ending.Failure = sent.Response
	}
	return ending, nil
}

// nameOf returns the description of a report for operators.
func nameOf(r passes.Report) string {
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

// Count checks which accepted reports the provider has counted. A later pass checks the uncounted
// reports again.
func (s *syncSteps) Count(ctx workflow.Context) error {
	var read activities.ReadProviderResult
	err := workflow.ExecuteActivity(providerCall(ctx, "read the provider's counts"), do.ReadProvider,
		activities.ReadProviderInput{CustomerInput: s.customer, Counts: true}).Get(ctx, &read)
	if temporal.IsCanceledError(err) {
		return err
	}
	if err == nil && read.Counted+read.Behind > 0 {
		s.show(ctx, "| summaries | |", fmt.Sprintf("%d reports counted, %d not yet counted", read.Counted, read.Behind))
	}
	return nil
}

// silence is the time without an answer after which a new sync request makes callProvider cancel the activity and start
// it again. Before that, the first attempt may still be running.
const silence = 30 * time.Second

// callProvider calls the provider until the activity ends. Temporal retries the activity with increasing pauses. A sync
// request, after silence, or an update by an operator ends such a pause: callProvider cancels the activity and starts
// it again.
func (s *syncCustomer) callProvider(ctx workflow.Context, deadline time.Time, summary string, call, input, answer any, show func(state string)) error {
	for {
		if err := s.waitIfPaused(ctx, show); err != nil {
			return err
		}
		s.discardUpdates()
		began, asked := workflow.Now(ctx), false
		trying, stop := workflow.WithCancel(retriedProviderCall(ctx, deadline, summary))
		answered := workflow.ExecuteActivity(trying, call, input)
		for !answered.IsReady() && !asked {
			workflow.NewSelector(ctx).
				AddFuture(answered, func(workflow.Future) {}).
				AddReceive(s.requests, func(requests workflow.ReceiveChannel, _ bool) {
					requests.Receive(ctx, nil) // the next pass takes the request's row
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

// waitIfPaused calls awaitResume if the run is paused, and shows the pause and its end to operators.
func (s *syncCustomer) waitIfPaused(ctx workflow.Context, show func(state string)) error {
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

// show updates the table of the run's latest steps for operators. It replaces the last row if both
// rows describe the same step.
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
		s.result.Passes, customerLink(s.CustomerID, s.page), strings.Join(s.progress, "\n")))
}

// SyncCustomerID returns the workflow ID of a customer's sync. At most one run of it is open.
func SyncCustomerID(tenant metering.TenantID, customer metering.CustomerID) string {
	return fmt.Sprintf("sync-customer/%d/%d", tenant, customer)
}

// syncCustomerStart returns the start of a customer's sync. A scheduled sync has a lower priority than any other.
func syncCustomerStart(tenant metering.TenantID, customer metering.CustomerID, trigger metering.Trigger) start {
	s := start{
		workflow: SyncCustomer,
		input:    SyncCustomerInput{TenantID: tenant, CustomerID: customer},
		id:       SyncCustomerID(tenant, customer),
		summary:  fmt.Sprintf("Sync the usage of %s", customer),
		details: fmt.Sprintf("Reports the usage of %[2]s to the billing provider of %[1]s, one stored report at a time. "+
			"Canceling the run fails the open sync requests; reports that were sent stay recorded. %[3]s", tenant, customer, customerRequestText(customer)),
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

// StartSyncCustomer signals the open run or starts a new one, so that a pass begins after this
// call. The caller commits the request's row first. A new run that is not urgent takes turns with
// scheduled syncs.
func StartSyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID, urgent bool) error {
	s := syncCustomerStart(tenant, customer, metering.Manual)
	if !urgent {
		s.priority = background
	}
	return s.startOrJoin(ctx, c)
}

// RestartSyncCustomer starts a run at background priority for requests that are open without a run.
// It does not signal a run that is open, because that run takes every request before it ends.
func RestartSyncCustomer(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID) error {
	s := syncCustomerStart(tenant, customer, metering.Scheduled)
	s.signal = ""
	return s.startOrJoin(ctx, c)
}
