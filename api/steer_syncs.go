package api

import (
	"context"
	"errors"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// syncVerb is an operation on a customer's syncs, such as retry or pause.
type syncVerb struct {
	name, summary, description string
	note                       string // effect of the request, for the response
	ask                        func(s *server, ctx context.Context, by ledger.Steering, open []uuid.UUID) error
}

const cancelVerb = "cancel"

var syncVerbs = []syncVerb{
	{
		"retry", "Retry a sync now", "Sends to the provider now instead of at `next_attempt_at`. Resumes a paused customer.\n\n" + runHas,
		"The customer's run sends to the provider now. It performs every sync in holds_for.",
		(*server).retrySync,
	},
	{
		"pause", "Pause a customer's syncs", "Stops all reports of the customer until the customer is resumed, including reports of Auto-Sync. A report that is being sent can still arrive.\n\n" +
			"- Events are still accepted, and billing periods still close.\n- A repeat changes nothing.",
		"The customer is paused. Every sync in holds_for and every later request waits until it is resumed. " +
			"Auto-Sync and the closing of periods report nothing for this customer.",
		(*server).pauseSync,
	},
	{
		"resume", "Resume a customer's syncs", "Ends the pause, also of a run that was paused in the Temporal UI. Returns 409 if the customer is not paused.\n\n" + runHas,
		"The customer's run continues. It performs every sync in holds_for.",
		(*server).resumeSync,
	},
	{
		cancelVerb, "Cancel a sync", "Ends the sync as `failed`. Reports that were sent remain. The customer's next sync reports the remaining usage. Resumes a paused customer.\n\n" + runHas,
		"Every sync in holds_for is canceled, because one run performs them all. The customer stays out of sync. " +
			"The next sync or Auto-Sync reports the rest.",
		(*server).cancelSync,
	},
}

const runHas = "- Returns 503 if the workflow engine or its workers do not respond. The request can still take effect."

func (s *server) registerSyncSteering() {
	const holds = "\n- Applies to every unfinished sync of the customer, listed in `holds_for` of the response.\n- Returns 409 if the sync is finished."
	for _, verb := range syncVerbs {
		op := post(verb.name+"-billing-sync", "/v1/billing/syncs/{id}/"+verb.name, BillingWrite, verb.summary, verb.description+holds)
		huma.Register(s.api, op, s.steerSync(verb))
	}
}

type steerSyncInput struct {
	ID   string `path:"id" example:"0192b1a0-0000-7000-8000-000000000000"`
	Body Because
}

type steeredSync struct {
	Sync     syncRun     `json:"sync"`
	HoldsFor []uuid.UUID `json:"holds_for" doc:"The customer's unfinished syncs, including this one. The request applies to all these syncs, because one run performs them" example:"[\"0192b1a0-0000-7000-8000-000000000000\"]"`
	Note     string      `json:"note" doc:"Effect of the request" example:"The customer's run continues. It performs every sync in holds_for."`
}

type steerSyncOutput struct{ Body steeredSync }

// steerSync returns the handler of an operation on syncs. The handler performs the operation and records its
// actor in the audit log, even if the caller disconnects.
func (s *server) steerSync(verb syncVerb) func(context.Context, *steerSyncInput) (*steerSyncOutput, error) {
	return func(ctx context.Context, in *steerSyncInput) (*steerSyncOutput, error) {
		reason, err := in.Body.reason()
		if err != nil {
			return nil, err
		}
		who := principalOf(ctx)
		run, err := s.findSync(ctx, in.ID)
		if err == nil {
			err = requireUnfinished(run)
		}
		if err != nil {
			return nil, err
		}
		open, err := s.Store.Syncs.OpenOf(ctx, who.Tenant.ID, run.CustomerID)
		if err != nil {
			return nil, err
		}
		by := ledger.Steering{Actor: who.Actor, Sync: run.ID, Customer: run.CustomerID, Reason: reason}
		if err := verb.ask(s, context.WithoutCancel(ctx), by, open); err != nil {
			return nil, err
		}
		if run, err = s.Store.Syncs.Get(ctx, who.Tenant.ID, run.ID); err != nil {
			return nil, err
		}
		if verb.name == cancelVerb && run.Status == metering.SyncSucceeded {
			return nil, requireUnfinished(run)
		}
		shown, err := s.showSyncProgress(ctx, run)
		return &steerSyncOutput{steeredSync{shown, open, verb.note}}, err
	}
}

func (s *server) pauseSync(ctx context.Context, by ledger.Steering, _ []uuid.UUID) error {
	return s.Store.Syncs.Pause(ctx, principalOf(ctx).Tenant.ID, by, s.Now())
}

// resumeSync ends the customer's pause and starts the workflow run. If Temporal does not respond, a worker
// starts the run. For a customer without a pause, resumeSync resumes a run that was paused in the Temporal
// UI.
func (s *server) resumeSync(ctx context.Context, by ledger.Steering, _ []uuid.UUID) error {
	tenant := principalOf(ctx).Tenant.ID
	ended, err := s.Store.Syncs.EndPause(ctx, tenant, by, s.Now())
	if err != nil {
		return err
	}
	if !ended {
		return s.recordSteering(ctx, by, "resume", workflows.ResumeSyncCustomer(ctx, s.Temporal, tenant, by.Customer, askedBy(by.Actor, by.Reason)))
	}
	if err := s.startSync(ctx, tenant, by.Customer); err != nil {
		s.Log.WarnContext(ctx, "start a resumed sync: Temporal did not answer, a worker starts it", "sync", by.Sync, "error", err)
	}
	return nil
}

func (s *server) retrySync(ctx context.Context, by ledger.Steering, _ []uuid.UUID) error {
	tenant := principalOf(ctx).Tenant.ID
	if _, err := s.Store.Syncs.EndPause(ctx, tenant, by, s.Now()); err != nil {
		return err
	}
	return s.recordSteering(ctx, by, "retry", workflows.RetrySyncCustomer(ctx, s.Temporal, tenant, by.Customer, askedBy(by.Actor, by.Reason)))
}

// cancelSync cancels the workflow run and fails the customer's open syncs.
func (s *server) cancelSync(ctx context.Context, by ledger.Steering, open []uuid.UUID) error {
	tenant := principalOf(ctx).Tenant.ID
	var unanswered error
	err := s.Store.Syncs.Cancel(ctx, tenant, by, open, workflows.Interrupted, s.Now(), func() error {
		unanswered = workflows.CancelSyncCustomer(ctx, s.Temporal, tenant, by.Customer)
		return unanswered
	})
	if unanswered != nil {
		return s.recordSteering(ctx, by, cancelVerb, unanswered)
	}
	return err
}

// recordSteering records a request to the workflow run in the audit log. err is the result of the request, which
// recordSteering also returns. It records nothing if the run refused the request.
func (s *server) recordSteering(ctx context.Context, by ledger.Steering, verb string, err error) error {
	if err != nil && metering.CodeOf(err) != metering.CodeUnavailable {
		return err
	}
	return errors.Join(err, s.Store.Syncs.Steered(ctx, principalOf(ctx).Tenant.ID, by, verb, err == nil))
}

// requireUnfinished returns an error if the sync has ended.
func requireUnfinished(run metering.Sync) error {
	if !run.Status.Done() {
		return nil
	}
	return metering.Errorf(metering.CodeConflict, "the sync has already %s; request another with POST /v1/billing/sync", run.Status)
}
