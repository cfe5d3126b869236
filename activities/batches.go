package activities

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// batchProgress is the heartbeat of SyncBatch, from which the next attempt continues.
type batchProgress struct {
	Rest   []metering.CustomerID `json:"rest"`   // customers that were not tried yet
	Unsure []metering.CustomerID `json:"unsure"` // failed customers; the cause is the customer or the provider
	Since  time.Time             `json:"since"`  // time at which the first unsure customer was tried
	Result SyncBatchResult       `json:"result"`
}

// SyncBatch reports the usage of customers to the provider, a few customers concurrently. If a
// customer fails while the provider answers for another, the cause is the customer, which gets its
// own run. If the provider answers for no customer, the cause is the provider, and the attempt ends
// with an error. The next attempt begins with the customers that were not tried yet.
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
		stop := sendHeartbeats(ctx, b.progress)
		err := b.syncAll(ctx, few)
		stop()
		activity.RecordHeartbeat(ctx, b.progress)
		if err != nil {
			return SyncBatchResult{}, err
		}
	}
	defer sendHeartbeats(ctx, b.progress)()
	err = b.syncLast(ctx)
	return b.progress.Result, err
}

// progressOf returns the progress of the previous attempt, or that of a first attempt if there is none. After all
// customers were tried, the next attempt tries the unsure ones again.
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

// batch is the state of one attempt of SyncBatch.
type batch struct {
	*Activities
	tenant   metering.TenantID
	provider providers.Description
	numbers  map[metering.CustomerID]int64 // numbers of the last reports before the batch
	progress batchProgress
}

// syncAll syncs the next few customers concurrently. If the provider has answered for any customer, it also retries the
// unsure customers. It returns only errors of the provider or the database.
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
	if err == nil && !tried.answered && len(b.progress.Unsure) > 1 {
		// If another batch or run has reported usage since b.progress.Since, the provider responds.
		// Then syncUnsure retries the unsure customers.
		tried.answered, err = b.store.Syncs.ReportedSince(ctx, b.tenant, b.progress.Since)
		if err == nil && !tried.answered {
			err = tried.failure
		}
	}
	if err != nil || !tried.answered {
		return err
	}
	return b.syncUnsure(ctx)
}

// syncUnsure retries the unsure customers after the provider has answered for another. For a
// customer that fails again, the cause is the customer.
func (b *batch) syncUnsure(ctx context.Context) error {
	for few := range slices.Chunk(slices.Clone(b.progress.Unsure), b.provider.AtOnce) {
		tried, err := b.try(ctx, few, func(customer metering.CustomerID, _ error) error { return b.recordFailure(ctx, customer) })
		b.progress.Unsure = slices.Concat(tried.left, b.progress.Unsure[len(few):])
		if err != nil {
			return err
		}
	}
	b.progress.Since = time.Time{}
	return nil
}

// syncLast retries the customers that are still unsure at the end of the batch, because the
// provider may have been unavailable for a moment. A refusal that is not limited to the customer
// ends the activity, because an operator has to act.
func (b *batch) syncLast(ctx context.Context) error {
	_, err := b.try(ctx, b.progress.Unsure, func(customer metering.CustomerID, failure error) error {
		if metering.CodeOf(failure) == metering.CodeProviderRefuse {
			return failure
		}
		return b.recordFailure(ctx, customer)
	})
	return err
}

// tried is the result of trying a few customers.
type tried struct {
	answered bool                  // the provider has answered a call for at least one of the customers
	failure  error                 // the last failure that the provider may have caused
	left     []metering.CustomerID // customers with an unknown result, because the database failed
}

// try syncs a few customers concurrently, and then evaluates the results in the order of the customers. It calls
// onUnclear for each failure that the customer or the provider may have caused. Its error comes from the database or
// from onUnclear.
func (b *batch) try(ctx context.Context, few []metering.CustomerID, onUnclear func(metering.CustomerID, error) error) (t tried, err error) {
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
		case verdictDatabase:
			t.left, failed = append(t.left, customer), failures[i]
		case verdictUnclear:
			t.failure, failed = failures[i], onUnclear(customer, failures[i])
		case verdictCustomer:
			failed = b.recordFailure(ctx, customer)
		default:
			b.progress.Result.Customers++
		}
		t.answered = t.answered || is == verdictSynced || is == verdictCustomer
		err = errors.Join(err, failed)
	}
	return t, err
}

// verdict is the result of a customer's sync: success, nothing to do, or the cause of the failure.
type verdict int

const (
	verdictSkipped  verdict = iota // the customer is paused or another run syncs it: the provider may not have been called
	verdictSynced                  // success: the provider has answered
	verdictCustomer                // the customer is the cause of the failure
	verdictUnclear                 // the customer or the provider is the cause of the failure
	verdictDatabase                // the database is the cause of the failure: the customer's result is unknown
)

// judge returns the verdict on the error of a customer's sync. It also counts the customers that another run is
// syncing.
func (b *batch) judge(ctx context.Context, err error) verdict {
	switch metering.CodeOf(err) {
	case "":
		return verdictSynced
	case metering.CodePaused:
		return verdictSkipped
	case metering.CodeOverloaded:
		if errors.As(err, new(ledger.Busy)) {
			b.progress.Result.Busy++
			return verdictSkipped
		}
		return verdictDatabase
	case metering.CodeUnavailable, metering.CodeNoProvider:
		return verdictDatabase
	case metering.CodeProviderRefuse:
		if isOwnRefusal(err) {
			return verdictCustomer
		}
	}
	if ctx.Err() != nil {
		return verdictDatabase
	}
	return verdictUnclear
}

// recordFailure adds the customer to the failed customers, and requests a sync, which the customer's own run performs.
func (b *batch) recordFailure(ctx context.Context, customer metering.CustomerID) error {
	b.progress.Result.Customers++
	if !slices.Contains(b.progress.Result.Failed, customer) {
		b.progress.Result.Failed = append(b.progress.Result.Failed, customer)
	}
	return b.store.Syncs.RequestOnce(ctx, b.tenant, customer, b.now())
}
