package limits

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Evaluator evaluates due customers. After Start it looks for them every second.
type Evaluator struct {
	evaluations Evaluations
	now         func() time.Time
	failed      func(error)
	sizes       batchSizes
	repeater    *pg.Repeater
}

const (
	evaluateEvery = time.Second
	listWithin    = 10 * time.Second // the time of listing tenants
	batchWithin   = 10 * time.Second // the time of one batch
)

// NewEvaluator returns an Evaluator that reports failures to failed.
func (s Stores) NewEvaluator(now func() time.Time, failed func(error)) *Evaluator {
	return &Evaluator{evaluations: s.Evaluations, now: now, failed: failed, sizes: make(batchSizes)}
}

// Start evaluates due customers in the background until Close.
func (e *Evaluator) Start() {
	e.repeater = pg.StartRepeater(evaluateEvery, func(r *pg.Repeater) {
		for !r.IsClosing() && e.Pass() {
		}
	})
}

// Close waits for the evaluation in progress.
func (e *Evaluator) Close() { e.repeater.Close() }

// Pass evaluates one batch of each tenant, so that no tenant keeps others waiting. It reports
// whether further customers may be due.
func (e *Evaluator) Pass() (more bool) {
	ctx, cancel := context.WithTimeout(context.Background(), listWithin)
	defer cancel()
	tenants, err := e.evaluations.dueTenants(ctx, e.now())
	if err != nil {
		e.failed(err)
		return false
	}
	for _, tenant := range tenants {
		more = e.batch(tenant) || more
		more = e.repeatFailed(tenant) || more
	}
	return more
}

// batch evaluates one batch of a tenant within a time of its own. It reports whether further
// customers may be due. Its connection is not of the tenant's share, so no request waits for it.
func (e *Evaluator) batch(tenant metering.TenantID) (more bool) {
	ctx, cancel := context.WithTimeout(context.Background(), batchWithin)
	defer cancel()
	elapsed := e.evaluations.pool.Stopwatch()
	b, err := e.evaluations.evaluateBatch(ctx, tenant, e.sizes.of(tenant), e.now())
	e.sizes.adjust(tenant, len(b.customers), elapsed(), err)
	if err != nil {
		return e.retry(tenant, b.customers, err)
	}
	return !b.isEmpty()
}

// repeatFailed repeats one evaluation of a tenant that failed, within a time of its own. It reports
// whether further ones may be due.
func (e *Evaluator) repeatFailed(tenant metering.TenantID) (more bool) {
	ctx, cancel := context.WithTimeout(context.Background(), batchWithin)
	defer cancel()
	customers, err := e.evaluations.evaluateFailed(ctx, tenant, e.now())
	if err != nil {
		return e.retry(tenant, customers, err)
	}
	return len(customers) > 0
}

// retry reports a failed batch. It postpones a batch of one customer, so that it does not block the
// other customers. A larger batch remains due, and the next one is smaller.
func (e *Evaluator) retry(tenant metering.TenantID, customers []int64, err error) (more bool) {
	e.failed(fmt.Errorf("evaluate alerts of %d customers of %s: %w", len(customers), tenant, err))
	if len(customers) != 1 {
		return len(customers) > 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), batchWithin)
	defer cancel()
	if err := e.evaluations.postpone(ctx, tenant, customers[0], e.now()); err != nil {
		e.failed(err)
		return false
	}
	return true
}

const (
	largestBatch = 500
	slowBatch    = time.Second
)

// batchSizes bound the next batches of tenants. A tenant without an entry has largestBatch.
type batchSizes map[metering.TenantID]int

func (s batchSizes) of(tenant metering.TenantID) int { return cmp.Or(s[tenant], largestBatch) }

// adjust sets the tenant's next size after a batch: half of the batch if it was slow, or else twice the
// size. If the batch failed, it is an eighth, so that few batches find the customer that fails.
// This customer is postponed, so the next batch has the largest size again.
func (s batchSizes) adjust(tenant metering.TenantID, customers int, elapsed time.Duration, err error) {
	switch size := s.of(tenant); {
	case customers == 0:
	case err != nil && customers > 1:
		s[tenant] = max(1, customers/8)
	case err == nil && elapsed > slowBatch:
		s[tenant] = max(1, customers/2)
	case err == nil && 2*size < largestBatch:
		s[tenant] = 2 * size
	default:
		delete(s, tenant)
	}
}
