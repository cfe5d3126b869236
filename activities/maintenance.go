package activities

import (
	"context"
	"errors"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// MakeChunks prepares the database for the events of the coming weeks.
func (a *Activities) MakeChunks(ctx context.Context) error {
	defer alive(ctx)()
	return a.store.Maintenance.MakeChunks(ctx, a.now())
}

// sweptAtOnce is how many rows one statement forgets.
const sweptAtOnce = 10_000

// inParts does something part by part, until less is found than a part has.
func inParts[N int | int64](most int, do func(most int) (N, error)) error {
	for {
		n, err := do(most)
		if err != nil || n < N(most) {
			return err
		}
	}
}

// SweepRequestIDs forgets the ids of signed requests that are too old to be
// accepted again.
func (a *Activities) SweepRequestIDs(ctx context.Context) error {
	defer alive(ctx)()
	return inParts(sweptAtOnce, func(most int) (int64, error) { return a.store.RequestIDs.Sweep(ctx, a.now(), most) })
}

// reportedAtOnce is how many credentials of a kind one transaction reports.
const reportedAtOnce = 100

// countsKept is how long counts of events and references to uncounted events are kept.
const countsKept = 90 * 24 * time.Hour

// firingsKept is how long firings of alerts are kept: longer than a yearly billing period.
const firingsKept = 400 * 24 * time.Hour

// SweepEventCounts deletes old counts of events, old references to uncounted events, old and
// deleted firings of alerts and quotas, deleted alerts, and reservations that expired long ago.
func (a *Activities) SweepEventCounts(ctx context.Context) error {
	defer alive(ctx)()
	now := a.now()
	before := now.Add(-countsKept)
	return errors.Join(
		inParts(sweptAtOnce, func(most int) (int64, error) { return a.store.EventCounts.Sweep(ctx, before, most) }),
		inParts(sweptAtOnce, func(most int) (int64, error) { return a.store.UncountedEvents.Sweep(ctx, before, most) }),
		inParts(sweptAtOnce, func(most int) (int64, error) { return a.store.Alerts.Sweep(ctx, now.Add(-firingsKept), most) }),
		inParts(sweptAtOnce, func(most int) (int64, error) { return a.store.Alerts.SweepDeleted(ctx, most) }),
		inParts(sweptAtOnce, func(most int) (int64, error) { return a.store.Quotas.SweepExceeded(ctx, now.Add(-firingsKept), most) }),
		inParts(sweptAtOnce, func(most int) (int64, error) {
			return a.store.Quotas.Sweep(ctx, now.Add(-metering.ReservationsKept), most)
		}),
	)
}

// ReportExpiringCredentials publishes which API keys and HMAC secrets expire soon.
func (a *Activities) ReportExpiringCredentials(ctx context.Context) error {
	defer alive(ctx)()
	return inParts(reportedAtOnce, func(most int) (int, error) { return a.store.Maintenance.ReportExpiring(ctx, a.now(), most) })
}

// RefreshDaily brings the independent count of usage up to date and compresses old
// events, where the database's edition has either.
func (a *Activities) RefreshDaily(ctx context.Context) error {
	defer alive(ctx)()
	_, err := a.store.Maintenance.Refresh(ctx, a.now())
	return err
}

// digestedAtOnce is how many closed periods without digests one query finds.
const digestedAtOnce = 100

// DigestPeriods makes the digests of periods that have closed.
func (a *Activities) DigestPeriods(ctx context.Context) error {
	defer alive(ctx)()
	return inParts(digestedAtOnce, func(most int) (int, error) { return a.store.Maintenance.DigestClosed(ctx, most) })
}

// DropEventsResult is what an hour's maintenance dropped.
type DropEventsResult struct {
	Chunks int `json:"chunks"`
}

// DropEvents drops the events and the conflicts that need not be kept any longer,
// where the deployment keeps them for a time only.
func (a *Activities) DropEvents(ctx context.Context) (DropEventsResult, error) {
	if a.keep == 0 {
		return DropEventsResult{}, nil
	}
	defer alive(ctx)()
	now := a.now()
	err := inParts(sweptAtOnce, func(most int) (int64, error) { return a.store.Conflicts.Sweep(ctx, a.keep.Cutoff(now), most) })
	if err != nil {
		return DropEventsResult{}, err
	}
	dropped, err := a.store.Maintenance.Retain(ctx, a.keep.Cutoff(now), now)
	return DropEventsResult{dropped}, err
}

// versionsDropped is how many retired meter versions one query finds.
const versionsDropped = 100

// DropRetired drops the rollups of meter versions that others have replaced.
func (a *Activities) DropRetired(ctx context.Context) error {
	defer alive(ctx)()
	return inParts(versionsDropped, func(most int) (int, error) { return a.store.Maintenance.DropRetired(ctx, a.now(), most) })
}
