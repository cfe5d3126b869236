package activities

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// MakeChunks prepares the database for the events of the coming weeks.
func (a *Activities) MakeChunks(ctx context.Context) error {
	defer alive(ctx)()
	return a.store.Maintenance.MakeChunks(ctx, a.now())
}

// sweptAtOnce is how many request ids one statement forgets.
const sweptAtOnce = 10_000

// SweepRequestIDs forgets the ids of signed requests that are too old to be
// accepted again.
func (a *Activities) SweepRequestIDs(ctx context.Context) error {
	defer alive(ctx)()
	for {
		removed, err := a.store.RequestIDs.Sweep(ctx, a.now(), sweptAtOnce)
		if err != nil || removed < sweptAtOnce {
			return err
		}
	}
}

// RefreshDaily brings the independent count of usage up to date and compresses old
// events, where the database's edition has either.
func (a *Activities) RefreshDaily(ctx context.Context) error {
	defer alive(ctx)()
	_, err := a.store.Maintenance.Refresh(ctx, a.now())
	return err
}

// DropEventsResult is what an hour's maintenance dropped.
type DropEventsResult struct {
	Chunks int `json:"chunks"`
}

// DropEvents drops the events that need not be kept any longer, where the
// deployment keeps them for a time only.
func (a *Activities) DropEvents(ctx context.Context) (DropEventsResult, error) {
	if a.keep == 0 {
		return DropEventsResult{}, nil
	}
	defer alive(ctx)()
	now := a.now()
	dropped, err := a.store.Maintenance.Retain(ctx, a.keep.Cutoff(now), now)
	return DropEventsResult{dropped}, err
}

// startOverdue is how long a row may wait for the start of its workflow.
const startOverdue = time.Minute

// UnfinishedResult is what the database says is unfinished.
type UnfinishedResult struct {
	Syncs     []BeginSyncInput    `json:"syncs"`     // customers with requests that nobody has answered
	Backfills []BackfillInput     `json:"backfills"` // meter versions whose past is not counted
	Closing   []metering.TenantID `json:"closing"`   // tenants with periods that are due

	Events  []ProviderEventInput  `json:"events,omitempty"`  // of providers', that nobody has handled
	Secrets []ReplacedSecretInput `json:"secrets,omitempty"` // HMAC secrets that are valid beside their successors
}

// Unfinished lists at most limit of each.
func (a *Activities) Unfinished(ctx context.Context, limit int) (UnfinishedResult, error) {
	defer alive(ctx)()
	open, err := a.store.Syncs.Open(ctx, a.now().Add(-startOverdue))
	if err != nil {
		return UnfinishedResult{}, err
	}
	backfilling, err := a.store.Backfills.Unfinished(ctx)
	if err != nil {
		return UnfinishedResult{}, err
	}
	var result UnfinishedResult
	for _, o := range open[:min(limit, len(open))] {
		result.Syncs = append(result.Syncs, BeginSyncInput{o.Tenant, o.Customer})
	}
	for _, f := range backfilling[:min(limit, len(backfilling))] {
		result.Backfills = append(result.Backfills, BackfillInput{f.Tenant, f.Version})
	}
	if result.Closing, err = a.store.Ledger.DueTenants(ctx, a.now()); err != nil {
		return UnfinishedResult{}, err
	}
	result.Closing = result.Closing[:min(limit, len(result.Closing))]
	events, err := a.store.ProviderEvents.Open(ctx, a.now().Add(-startOverdue))
	if err != nil {
		return UnfinishedResult{}, err
	}
	for _, e := range events[:min(limit, len(events))] {
		result.Events = append(result.Events, ProviderEventInput{e.Tenant, e.Row})
	}
	replaced, err := a.store.HMACSecrets.Replaced(ctx, a.now().Add(metering.MaxOverlap))
	for _, r := range replaced[:min(limit, len(replaced))] {
		result.Secrets = append(result.Secrets, ReplacedSecretInput{r.Tenant, r.Secret})
	}
	return result, err
}
