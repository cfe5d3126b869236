package limits

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Evaluator evaluates the alerts and quotas of due customers. After Start, it polls for due customers every
// second.
type Evaluator struct {
	Timeout time.Duration // time limit of listing tenants, and of one batch

	evaluations Evaluations
	now         func() time.Time
	failed      func(error)
	sizes       batchSizes
	repeater    *pg.Repeater
}

const (
	evaluateEvery   = time.Second
	evaluateTimeout = 10 * time.Second // default of Evaluator.Timeout
)

// NewEvaluator returns an Evaluator that calls failed with each error.
func (s Stores) NewEvaluator(now func() time.Time, failed func(error)) *Evaluator {
	return &Evaluator{Timeout: evaluateTimeout, evaluations: s.Evaluations, now: now, failed: failed, sizes: make(batchSizes)}
}

// Start evaluates due customers in the background until Close.
func (e *Evaluator) Start() {
	e.repeater = pg.StartRepeater(evaluateEvery, func(r *pg.Repeater) {
		for !r.IsClosing() && e.Pass() {
		}
	})
}

// Close stops the evaluator, and waits for the evaluation in progress.
func (e *Evaluator) Close() { e.repeater.Close() }

// Pass evaluates one batch of each tenant, so that no tenant keeps others waiting. It reports
// whether further customers may be due.
func (e *Evaluator) Pass() (more bool) {
	ctx, cancel := context.WithTimeout(context.Background(), e.Timeout)
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

// batch evaluates one batch of a tenant, with a timeout of its own. It reports whether further customers may be
// due. Its connection does not count toward the tenant's share of connections, so the tenant's requests do not
// wait for it.
func (e *Evaluator) batch(tenant metering.TenantID) (more bool) {
	ctx, cancel := context.WithTimeout(context.Background(), e.Timeout)
	defer cancel()
	elapsed := e.evaluations.pool.Stopwatch()
	b, err := e.evaluations.evaluateBatch(ctx, tenant, e.sizes.sizeOf(tenant), e.now())
	e.sizes.adjust(tenant, len(b.customers), elapsed(), err)
	if err != nil {
		return e.retry(tenant, b.customers, err)
	}
	return !b.isEmpty()
}

// repeatFailed repeats one failed evaluation of a tenant, with a timeout of its own. It reports whether further
// failed evaluations may be due.
func (e *Evaluator) repeatFailed(tenant metering.TenantID) (more bool) {
	ctx, cancel := context.WithTimeout(context.Background(), e.Timeout)
	defer cancel()
	customers, err := e.evaluations.evaluateFailed(ctx, tenant, e.now())
	if err != nil {
		return e.retry(tenant, customers, err)
	}
	return len(customers) > 0
}

// retry reports a failed batch. If the batch has one customer, retry postpones the customer, so that the other
// customers are not blocked. A larger batch remains due, and the next batch is smaller.
func (e *Evaluator) retry(tenant metering.TenantID, customers []int64, err error) (more bool) {
	e.failed(fmt.Errorf("evaluate alerts of %d customers of %s: %w", len(customers), tenant, err))
	if len(customers) != 1 {
		return len(customers) > 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), e.Timeout)
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

// batchSizes holds the maximum number of customers in each tenant's next batch. The maximum of a tenant without
// an entry is largestBatch.
type batchSizes map[metering.TenantID]int

func (s batchSizes) sizeOf(tenant metering.TenantID) int { return cmp.Or(s[tenant], largestBatch) }

// adjust sets the size of the tenant's next batch after a batch. The size is half of the batch if the batch was slow,
// and otherwise twice the previous size, at most largestBatch. If the batch failed, the size is an eighth of the batch,
// so that few batches find the failing customer. Once a batch consists of that customer alone, retry postpones the
// customer, and the next batch has the largest size again.
func (s batchSizes) adjust(tenant metering.TenantID, customers int, elapsed time.Duration, err error) {
	switch size := s.sizeOf(tenant); {
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
