package activities

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// batchProgress is the heartbeat of SyncBatch: where another attempt goes on.
type batchProgress struct {
	Rest   []metering.CustomerID `json:"rest"`   // not tried yet
	Unsure []metering.CustomerID `json:"unsure"` // tried in vain: is it the customer or the provider?
	Since  time.Time             `json:"since"`  // when the first of them was
	Result SyncBatchResult       `json:"result"`
}

// SyncBatch brings customers' usage to the provider, a few at once. A customer
// that fails while another goes through has failed on its own, and is left to a
// run of its own. Where nobody goes through it is the provider's failure, which
// ends the attempt: the next one begins with those that were not tried yet.
func (a *Activities) SyncBatch(ctx context.Context, in BatchInput) (SyncBatchResult, error) {
	b := &batch{Activities: a, tenant: in.TenantID, progress: progressOf(ctx, in.Customers)}
	provider, err := a.store.Providers.Active(ctx, in.TenantID)
	if err != nil {
		return SyncBatchResult{}, err
	}
	kind, err := a.providers.Of(provider.Kind)
	if err != nil {
		return SyncBatchResult{}, err
	}
	b.provider = kind.Describe()
	if b.numbers, err = a.store.Ledger.LastNumbers(ctx, in.TenantID, in.Customers); err != nil {
		return SyncBatchResult{}, err
	}
	for len(b.progress.Rest) > 0 {
		few := b.progress.Rest[:min(b.provider.AtOnce, len(b.progress.Rest))]
		stop := alive(ctx, b.progress)
		err := b.syncAll(ctx, few)
		stop()
		activity.RecordHeartbeat(ctx, b.progress)
		if err != nil {
			return SyncBatchResult{}, err
		}
	}
	defer alive(ctx, b.progress)()
	err = b.syncLast(ctx)
	return b.progress.Result, err
}

// progressOf is where the attempt before this one has come to.
func progressOf(ctx context.Context, customers []metering.CustomerID) batchProgress {
	first := batchProgress{Rest: customers}
	if !activity.HasHeartbeatDetails(ctx) {
		return first
	}
	var p batchProgress
	if err := activity.GetHeartbeatDetails(ctx, &p); err != nil {
		return first
	}
	if len(p.Rest) == 0 {
		p.Rest, p.Unsure = p.Unsure, nil
	}
	return p
}

type batch struct {
	*Activities
	tenant   metering.TenantID
	provider providers.Description
	numbers  map[metering.CustomerID]int64 // of the last reports before the batch
	progress batchProgress
}

// syncAll syncs the next few customers at once. Its error is one of the provider
// or the database.
func (b *batch) syncAll(ctx context.Context, few []metering.CustomerID) error {
	began := b.now()
	tried, err := b.try(ctx, few, func(customer metering.CustomerID, _ error) error {
		b.progress.Unsure = append(b.progress.Unsure, customer)
		return nil
	})
	b.progress.Rest = slices.Concat(tried.left, b.progress.Rest[len(few):])
	if len(b.progress.Unsure) > 0 && b.progress.Since.IsZero() {
		b.progress.Since = began
	}
	if err == nil && !tried.through && len(b.progress.Unsure) > 1 {
		tried.through, err = b.store.Syncs.ReportedSince(ctx, b.tenant, b.progress.Since) // by another batch or run
		if err == nil && !tried.through {
			err = tried.failure
		}
	}
	if err != nil || !tried.through {
		return err
	}
	return b.syncUnsure(ctx)
}

// syncUnsure tries those again who were tried in vain, now that somebody has
// got through. Who fails again fails on its own.
func (b *batch) syncUnsure(ctx context.Context) error {
	for few := range slices.Chunk(slices.Clone(b.progress.Unsure), b.provider.AtOnce) {
		tried, err := b.try(ctx, few, func(customer metering.CustomerID, _ error) error { return b.fail(ctx, customer) })
		b.progress.Unsure = slices.Concat(tried.left, b.progress.Unsure[len(few):])
		if err != nil {
			return err
		}
	}
	b.progress.Since = time.Time{}
	return nil
}

// syncLast tries the one again who was tried in vain and had nobody beside it:
// perhaps the provider was just away. What it refuses to all is for operators.
func (b *batch) syncLast(ctx context.Context) error {
	_, err := b.try(ctx, b.progress.Unsure, func(customer metering.CustomerID, failure error) error {
		if metering.CodeOf(failure) == metering.CodeProviderRefuse {
			return failure
		}
		return b.fail(ctx, customer)
	})
	return err
}

// tried is what came of trying a few customers.
type tried struct {
	through bool                  // the provider has answered one of them
	failure error                 // the last one of those that may be the provider's
	left    []metering.CustomerID // of whom nothing is known: the database has failed
}

// try syncs a few customers at once and judges them in their order; in vain are
// those whose failure may be theirs or the provider's. Its error is the database's.
func (b *batch) try(ctx context.Context, few []metering.CustomerID, vain func(metering.CustomerID, error) error) (t tried, err error) {
	sent, failures := make([]int, len(few)), make([]error, len(few))
	var syncing sync.WaitGroup
	for i, customer := range few {
		syncing.Go(func() { sent[i], failures[i] = b.sync(ctx, customer) })
	}
	syncing.Wait()
	for i, customer := range few {
		b.progress.Result.Sent += sent[i]
		is, failed := b.judge(ctx, failures[i]), error(nil)
		switch is {
		case notOurs:
			t.left, failed = append(t.left, customer), failures[i]
		case inVain:
			t.failure, failed = failures[i], vain(customer, failures[i])
		case itsOwn:
			failed = b.fail(ctx, customer)
		default:
			b.progress.Result.Customers++
		}
		t.through = t.through || is == answered || is == itsOwn
		err = errors.Join(err, failed)
	}
	return t, err
}

// verdict says whose failure it was that a customer was not synced, if it was not.
type verdict int

const (
	done     verdict = iota // and the provider may not have been called
	answered                // by the provider, and done
	itsOwn                  // the customer's
	inVain                  // the customer's or the provider's
	notOurs                 // the database's: nothing is known of the customer
)

func (b *batch) judge(ctx context.Context, err error) verdict {
	switch metering.CodeOf(err) {
	case "":
		return answered
	case metering.CodePaused:
		return done
	case metering.CodeOverloaded:
		if errors.As(err, new(db.Busy)) {
			b.progress.Result.Busy++
			return done
		}
		return notOurs
	case metering.CodeUnavailable, metering.CodeNoProvider:
		return notOurs
	case metering.CodeProviderRefuse:
		if errors.As(err, new(providers.OwnRefusal)) {
			return itsOwn
		}
	}
	if ctx.Err() != nil {
		return notOurs
	}
	return inVain
}

// fail leaves the customer to a run of its own.
func (b *batch) fail(ctx context.Context, customer metering.CustomerID) error {
	b.progress.Result.Customers++
	if !slices.Contains(b.progress.Result.Failed, customer) {
		b.progress.Result.Failed = append(b.progress.Result.Failed, customer)
	}
	return b.store.Syncs.RequestOnce(ctx, b.tenant, customer, b.now())
}
