package activities

import (
	"context"
	"errors"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// MakeChunks creates the chunks for the events of the coming weeks.
func (a *Activities) MakeChunks(ctx context.Context) error {
	defer sendHeartbeats(ctx)()
	return a.store.Maintenance.MakeChunks(ctx, a.now())
}

// sweptAtOnce is the maximum number of rows that one statement deletes.
const sweptAtOnce = 10_000

// doInParts calls do repeatedly with the maximum number of rows of a part. It returns when do has handled fewer rows,
// or fails.
func doInParts[N int | int64](most int, do func(most int) (N, error)) error {
	for {
		n, err := do(most)
		if err != nil || n < N(most) {
			return err
		}
	}
}

// SweepRequestIDs deletes the ids of signed requests that are too old to be accepted again.
func (a *Activities) SweepRequestIDs(ctx context.Context) error {
	defer sendHeartbeats(ctx)()
	return doInParts(sweptAtOnce, func(most int) (int64, error) { return a.store.RequestIDs.Sweep(ctx, a.now(), most) })
}

// reportedAtOnce is the maximum number of credentials of a kind that one transaction reports.
const reportedAtOnce = 100

// countsKept is the retention of counts of events and of references to uncounted events.
const countsKept = 90 * 24 * time.Hour

// historyKept is the retention of syncs, alert firings and exceeded quotas. It is longer than a yearly
// billing period.
const historyKept = 400 * 24 * time.Hour

// accessKept is the retention of sessions and invitations after they expire.
const accessKept = 30 * 24 * time.Hour

// providerEventsKept is the retention of handled provider events. It is longer than any provider can send or list an
// event again.
const providerEventsKept = 90 * 24 * time.Hour

// SweepEventCounts deletes the following rows:
//   - counts of events and references to uncounted events, countsKept after their time
//   - firings of deleted alerts, and the deleted alerts without firings
//   - firings, historyKept after the end of their period and after they fired
//   - exceeded quotas, historyKept after the end of their window
//   - reservations, metering.ReservationsKept after they expired
//   - syncs, historyKept after they finished
//   - handled provider events, providerEventsKept after they were handled
//   - sessions and invitations, accessKept after they expired
func (a *Activities) SweepEventCounts(ctx context.Context) error {
	defer sendHeartbeats(ctx)()
	now := a.now()
	before := now.Add(-countsKept)
	return errors.Join(
		doInParts(sweptAtOnce, func(most int) (int64, error) { return a.store.EventCounts.Sweep(ctx, before, most) }),
		doInParts(sweptAtOnce, func(most int) (int64, error) { return a.store.UncountedEvents.Sweep(ctx, before, most) }),
		doInParts(sweptAtOnce, func(most int) (int64, error) { return a.store.Alerts.Sweep(ctx, now.Add(-historyKept), most) }),
		doInParts(sweptAtOnce, func(most int) (int64, error) { return a.store.Alerts.SweepDeleted(ctx, most) }),
		doInParts(sweptAtOnce, func(most int) (int64, error) { return a.store.Quotas.SweepExceeded(ctx, now.Add(-historyKept), most) }),
		doInParts(sweptAtOnce, func(most int) (int64, error) {
			return a.store.Quotas.Sweep(ctx, now.Add(-metering.ReservationsKept), most)
		}),
		doInParts(sweptAtOnce, func(most int) (int64, error) { return a.store.Syncs.Sweep(ctx, now.Add(-historyKept), most) }),
		doInParts(sweptAtOnce, func(most int) (int64, error) {
			return a.store.ProviderEvents.Sweep(ctx, now.Add(-providerEventsKept), most)
		}),
		doInParts(sweptAtOnce, func(most int) (int64, error) { return a.store.Sessions.Sweep(ctx, now.Add(-accessKept), most) }),
		doInParts(sweptAtOnce, func(most int) (int64, error) { return a.store.Invitations.Sweep(ctx, now.Add(-accessKept), most) }),
	)
}

// ReportExpiringCredentials publishes messages about API keys and HMAC secrets that expire soon.
func (a *Activities) ReportExpiringCredentials(ctx context.Context) error {
	defer sendHeartbeats(ctx)()
	return doInParts(reportedAtOnce, func(most int) (int, error) { return a.store.Credentials.ReportExpiring(ctx, a.now(), most) })
}

// RefreshDaily updates the independent daily count of usage and compresses old events. Both require
// TimescaleDB's Community edition.
func (a *Activities) RefreshDaily(ctx context.Context) error {
	defer sendHeartbeats(ctx)()
	_, err := a.store.Maintenance.Refresh(ctx, a.now())
	return err
}

// digestedAtOnce is the maximum number of closed periods without digests that one query returns.
const digestedAtOnce = 100

// DigestPeriods computes the digests of closed periods.
func (a *Activities) DigestPeriods(ctx context.Context) error {
	defer sendHeartbeats(ctx)()
	return doInParts(digestedAtOnce, func(most int) (int, error) { return a.store.Ledger.DigestClosed(ctx, most) })
}

// DropEventsResult counts the deleted chunks of events.
type DropEventsResult struct {
	Chunks int `json:"chunks"`
}

// DropEvents deletes events and conflicts after the retention time, if the deployment has one.
func (a *Activities) DropEvents(ctx context.Context) (DropEventsResult, error) {
	if a.retention == 0 {
		return DropEventsResult{}, nil
	}
	defer sendHeartbeats(ctx)()
	now := a.now()
	err := doInParts(sweptAtOnce, func(most int) (int64, error) { return a.store.Conflicts.Sweep(ctx, a.retention.Cutoff(now), most) })
	if err != nil {
		return DropEventsResult{}, err
	}
	dropped, err := a.store.Maintenance.Retain(ctx, a.retention.Cutoff(now), now)
	return DropEventsResult{dropped}, err
}

// versionsDropped is the maximum number of retired meter versions that one query returns.
const versionsDropped = 100

// DropRetired deletes the rollups of replaced meter versions.
func (a *Activities) DropRetired(ctx context.Context) error {
	defer sendHeartbeats(ctx)()
	return doInParts(versionsDropped, func(most int) (int, error) { return a.store.Maintenance.DropRetired(ctx, a.now(), most) })
}
