package api

import (
	"context"
	"errors"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"
	"go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// syncVerb is what an operator may ask of the run that a sync waits for.
type syncVerb struct {
	name, summary, description string
	note                       string // in the answer: what it holds for
	ask                        func(ctx context.Context, c client.Client, tenant metering.TenantID, customer metering.CustomerID) error
}

const cancelVerb = "cancel"

var syncVerbs = []syncVerb{
	{
		"retry", "Retry a sync now", "The provider is tried at once instead of at next_attempt_at. A sync that is paused goes on.",
		"The customer's run tries the provider at once, and brings every sync of holds_for.",
		workflows.RetrySyncCustomer,
	},
	{
		"pause", "Pause a sync", "Nothing more is sent until it is resumed, however long that takes; what is being sent may still arrive. Pausing again changes nothing.",
		"The customer's run is paused, with every sync of holds_for and those that are requested until it is resumed. " +
			"Auto-Sync and the closing of periods are runs of their own and may still report this customer's usage.",
		workflows.PauseSyncCustomer,
	},
	{
		"resume", "Resume a sync", "409 where it is not paused.",
		"The customer's run goes on, and brings every sync of holds_for.",
		workflows.ResumeSyncCustomer,
	},
	{
		cancelVerb, "Cancel a sync", "What was sent stays recorded. The rest stays unreported until the customer's next sync.",
		"Every sync of holds_for is cancelled: one run brings them all. The customer stays out of sync, so that the next sync, " +
			"or Auto-Sync, brings what is left.",
		workflows.CancelSyncCustomer,
	},
}

func (s *server) steerSyncs() {
	const holds = " It holds for the customer's run, which brings every sync of the customer that is not over: see holds_for and note in the answer. " +
		"409 where the sync is over, 503 where the workflow engine or its workers do not answer: then it may still happen."
	for _, verb := range syncVerbs {
		op := post(verb.name+"-billing-sync", "/v1/billing/syncs/{id}/"+verb.name, BillingWrite, verb.summary)
		huma.Register(s.api, described(op, verb.description+holds), s.steerSync(verb))
	}
}

type steeredSync struct {
	Sync     syncRun     `json:"sync"`
	HoldsFor []uuid.UUID `json:"holds_for" doc:"The customer's syncs that were not over, this one among them: one run brings them all" example:"[\"0192b1a0-0000-7000-8000-000000000000\"]"`
	Note     string      `json:"note" doc:"What it holds for, in words" example:"The customer's run goes on, and brings every sync of holds_for."`
}

type steerSyncOutput struct{ Body steeredSync }

// steerSync asks the run and then writes down who asked, whether the caller
// still listens or not.
func (s *server) steerSync(verb syncVerb) func(context.Context, *getSyncInput) (*steerSyncOutput, error) {
	return func(ctx context.Context, in *getSyncInput) (*steerSyncOutput, error) {
		tenant := principalOf(ctx).Tenant.ID
		run, err := s.findSync(ctx, in.ID)
		if err == nil {
			err = notOver(run)
		}
		if err != nil {
			return nil, err
		}
		open, err := s.Store.Syncs.OpenOf(ctx, tenant, run.CustomerID)
		if err != nil {
			return nil, err
		}
		if err := s.ask(context.WithoutCancel(ctx), verb, run, open); err != nil {
			return nil, err
		}
		if run, err = s.Store.Syncs.Get(ctx, tenant, run.ID); err != nil {
			return nil, err
		}
		if verb.name == cancelVerb && run.Status == metering.SyncSucceeded {
			return nil, notOver(run)
		}
		shown, err := s.showOpen(ctx, run)
		return &steerSyncOutput{steeredSync{shown, open, verb.note}}, err
	}
}

// ask asks the run, and the audit log keeps it unless it was refused. A run that
// is cancelled answers the requests that it has taken; the others are answered here.
func (s *server) ask(ctx context.Context, verb syncVerb, run metering.Sync, open []uuid.UUID) error {
	who := principalOf(ctx)
	err := verb.ask(ctx, s.Temporal, who.Tenant.ID, run.CustomerID)
	switch {
	case metering.CodeOf(err) == metering.CodeUnavailable:
		return errors.Join(err, s.Store.Syncs.Steered(ctx, who.Tenant.ID, who.Actor, run.ID, verb.name, false))
	case err != nil:
		return err
	case verb.name == cancelVerb:
		return s.Store.Syncs.Cancel(ctx, who.Tenant.ID, who.Actor, run.ID, open, workflows.Interrupted, s.Now())
	}
	return s.Store.Syncs.Steered(ctx, who.Tenant.ID, who.Actor, run.ID, verb.name, true)
}

func notOver(run metering.Sync) error {
	if !run.Status.Done() {
		return nil
	}
	return metering.Errorf(metering.CodeConflict, "the sync has %s; POST /v1/billing/sync requests another", run.Status)
}
