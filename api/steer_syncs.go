package api

import (
	"context"
	"errors"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// syncVerb is what an operator may ask of a customer's syncs.
type syncVerb struct {
	name, summary, description string
	note                       string // in the answer: what it holds for
	ask                        func(s *server, ctx context.Context, by db.Steering, open []uuid.UUID) error
}

const cancelVerb = "cancel"

var syncVerbs = []syncVerb{
	{
		"retry", "Retry a sync now", "The provider is tried at once instead of at next_attempt_at. A customer who is paused is resumed. " + runHas,
		"The customer's run tries the provider at once, and brings every sync of holds_for.",
		(*server).retrySync,
	},
	{
		"pause", "Pause a customer's syncs", "Nothing more of the customer is reported, by Auto-Sync neither, until it is resumed, however long that takes; " +
			"what is being sent may still arrive. Usage is taken and periods close as ever. Pausing again changes nothing.",
		"The customer is paused: every sync of holds_for waits, and those that are requested until it is resumed. " +
			"Auto-Sync and the closing of periods report nothing of this customer either.",
		(*server).pauseSync,
	},
	{
		"resume", "Resume a customer's syncs", "409 where they are not paused. A run that was paused in the Temporal UI goes on too. " + runHas,
		"The customer's run goes on, and brings every sync of holds_for.",
		(*server).resumeSync,
	},
	{
		cancelVerb, "Cancel a sync", "What was sent stays recorded. The rest stays unreported until the customer's next sync. A customer who is paused is resumed. " + runHas,
		"Every sync of holds_for is cancelled: one run brings them all. The customer stays out of sync, so that the next sync, " +
			"or Auto-Sync, brings what is left.",
		(*server).cancelSync,
	},
}

const runHas = "503 where the workflow engine or its workers do not answer: then it may still happen."

func (s *server) steerSyncs() {
	const holds = " It holds for every sync of the customer that is not over: see holds_for and note in the answer. 409 where the sync is over."
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
	HoldsFor []uuid.UUID `json:"holds_for" doc:"The customer's syncs that were not over, this one among them: one run brings them all" example:"[\"0192b1a0-0000-7000-8000-000000000000\"]"`
	Note     string      `json:"note" doc:"What it holds for, in words" example:"The customer's run goes on, and brings every sync of holds_for."`
}

type steerSyncOutput struct{ Body steeredSync }

// steerSync does what is asked and writes down who asked, whether the caller
// still listens or not.
func (s *server) steerSync(verb syncVerb) func(context.Context, *steerSyncInput) (*steerSyncOutput, error) {
	return func(ctx context.Context, in *steerSyncInput) (*steerSyncOutput, error) {
		reason, err := in.Body.reason()
		if err != nil {
			return nil, err
		}
		who := principalOf(ctx)
		run, err := s.findSync(ctx, in.ID)
		if err == nil {
			err = notOver(run)
		}
		if err != nil {
			return nil, err
		}
		open, err := s.Store.Syncs.OpenOf(ctx, who.Tenant.ID, run.CustomerID)
		if err != nil {
			return nil, err
		}
		by := db.Steering{Actor: who.Actor, Sync: run.ID, Customer: run.CustomerID, Reason: reason}
		if err := verb.ask(s, context.WithoutCancel(ctx), by, open); err != nil {
			return nil, err
		}
		if run, err = s.Store.Syncs.Get(ctx, who.Tenant.ID, run.ID); err != nil {
			return nil, err
		}
		if verb.name == cancelVerb && run.Status == metering.SyncSucceeded {
			return nil, notOver(run)
		}
		shown, err := s.showOpen(ctx, run)
		return &steerSyncOutput{steeredSync{shown, open, verb.note}}, err
	}
}

func (s *server) pauseSync(ctx context.Context, by db.Steering, _ []uuid.UUID) error {
	return s.Store.Syncs.Pause(ctx, principalOf(ctx).Tenant.ID, by, s.Now())
}

// resumeSync ends the customer's pause, and then it is resumed: where Temporal
// does not answer, the worker begins the run. Without a pause it asks the run.
func (s *server) resumeSync(ctx context.Context, by db.Steering, _ []uuid.UUID) error {
	tenant := principalOf(ctx).Tenant.ID
	ended, err := s.Store.Syncs.EndPause(ctx, tenant, by, s.Now())
	if err != nil {
		return err
	}
	if !ended {
		return s.steered(ctx, by, "resume", workflows.ResumeSyncCustomer(ctx, s.Temporal, tenant, by.Customer, asked(by.Actor, by.Reason)))
	}
	if err := workflows.StartSyncCustomer(ctx, s.Temporal, tenant, by.Customer, metering.Manual); err != nil {
		s.Log.WarnContext(ctx, "begin a resumed sync: the worker will", "sync", by.Sync, "error", err)
	}
	return nil
}

func (s *server) retrySync(ctx context.Context, by db.Steering, _ []uuid.UUID) error {
	tenant := principalOf(ctx).Tenant.ID
	if _, err := s.Store.Syncs.EndPause(ctx, tenant, by, s.Now()); err != nil {
		return err
	}
	return s.steered(ctx, by, "retry", workflows.RetrySyncCustomer(ctx, s.Temporal, tenant, by.Customer, asked(by.Actor, by.Reason)))
}

// cancelSync cancels the run, and answers the requests that it was to bring.
func (s *server) cancelSync(ctx context.Context, by db.Steering, open []uuid.UUID) error {
	tenant := principalOf(ctx).Tenant.ID
	var unanswered error
	err := s.Store.Syncs.Cancel(ctx, tenant, by, open, workflows.Interrupted, s.Now(), func() error {
		unanswered = workflows.CancelSyncCustomer(ctx, s.Temporal, tenant, by.Customer)
		return unanswered
	})
	if unanswered != nil {
		return s.steered(ctx, by, cancelVerb, unanswered)
	}
	return err
}

// steered has the audit log keep what the run was asked, unless it refused.
func (s *server) steered(ctx context.Context, by db.Steering, verb string, err error) error {
	if err != nil && metering.CodeOf(err) != metering.CodeUnavailable {
		return err
	}
	return errors.Join(err, s.Store.Syncs.Steered(ctx, principalOf(ctx).Tenant.ID, by, verb, err == nil))
}

func notOver(run metering.Sync) error {
	if !run.Status.Done() {
		return nil
	}
	return metering.Errorf(metering.CodeConflict, "the sync has %s; POST /v1/billing/sync requests another", run.Status)
}
