package activities

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/billing/passes"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// CustomerPageInput selects the next page of a tenant's customers, in the order of their ids.
type CustomerPageInput struct {
	TenantID metering.TenantID   `json:"tenant_id"`
	After    metering.CustomerID `json:"after"`
	Limit    int                 `json:"limit"`
	Closed   bool                `json:"closed,omitempty"` // only customers with an incomplete closed period
}

// CustomerPageResult is a page of customers. The next page begins after Last.
type CustomerPageResult struct {
	Customers []metering.CustomerID `json:"customers"`
	Last      metering.CustomerID   `json:"last"`
	More      bool                  `json:"more"`
}

// FindOutOfSync returns the next customers that may need a sync. These customers have unreported
// usage, an undecided report, a plan that has to be re-evaluated, or a state at the provider that
// was never read.
func (a *Activities) FindOutOfSync(ctx context.Context, in CustomerPageInput) (CustomerPageResult, error) {
	defer sendHeartbeats(ctx)()
	find := a.store.Ledger.OutOfSync
	if in.Closed {
		find = a.store.Ledger.OutOfSyncClosed
	}
	page, err := find(ctx, in.TenantID, in.After, in.Limit, a.now())
	return CustomerPageResult(page), err
}

// BatchInput names some customers of a tenant.
type BatchInput struct {
	TenantID  metering.TenantID     `json:"tenant_id"`
	Customers []metering.CustomerID `json:"customers"`
}

// SyncBatchResult counts the work of a batch. Each failed customer has an open sync request, so
// that its own run can show the reason.
type SyncBatchResult struct {
	Customers int                   `json:"customers"`
	Sent      int                   `json:"sent"` // accepted reports
	Busy      int                   `json:"busy"` // customers that another run is syncing
	Failed    []metering.CustomerID `json:"failed"`
}

// sync reports the unreported usage of a customer. If the pass succeeds and the provider has
// accepted a report, sync records a successful sync.
func (b *batch) sync(ctx context.Context, customer metering.CustomerID) (sent int, err error) {
	steps := &batchSteps{batch: b, customer: CustomerInput{b.tenant, customer}, began: b.now()}
	passed, err := passes.Run(ctx, steps, !b.provider.Statements)
	if err == nil && passed.Failure != "" {
		err = metering.Errorf(metering.CodeProviderRefuse, "%s", passed.Failure).Because(providers.OwnRefusal{})
	}
	if err != nil || passed.Sent == 0 {
		return passed.Sent, errors.Join(err, steps.flush(ctx))
	}
	return passed.Sent, steps.record(ctx, passed)
}

// batchSteps implements passes.Steps for one customer of a batch.
type batchSteps struct {
	*batch
	customer CustomerInput
	began    time.Time
	read     bool

	leased   *ledger.Leased   // lease of the plan's first report; nil: the plan has no report
	accepted *ledger.Accepted // last accepted report, which is recorded together with the next change
	kind     billing.Kind     // of the accepted report
	excluded []billing.Exclusion
}

// Read reads the customer's state at the provider and stores it, once unless force is set.
func (s *batchSteps) Read(ctx context.Context, force bool) (failure string, err error) {
	if s.read && !force {
		return "", nil
	}
	_, err = s.readProvider(ctx, ReadProviderInput{CustomerInput: s.customer})
	s.read = err == nil
	return "", err
}

// Plan records the last accepted report, then plans and stores the next reports. It also leases the first report of the
// plan.
func (s *batchSteps) Plan(ctx context.Context) (plan passes.Plan, failure string, err error) {
	if err := s.flush(ctx); err != nil {
		return plan, "", err
	}
	pass := ledger.Pass{After: s.numbers[s.customer.CustomerID], Lease: s.leaseTime()}
	planned, err := s.store.Ledger.Plan(ctx, s.tenant, s.customer.CustomerID, pass, s.providers.Frame, s.now())
	s.leased, s.excluded = planned.Leased, planned.Excluded
	return planOf(planned), "", err
}

// Send leaves a refused report undecided. The customer then gets its own run, which shows operators the reason.
func (s *batchSteps) Send(ctx context.Context, report passes.Report) (passes.Ending, error) {
	if err := s.flush(ctx); err != nil {
		return passes.Ending{}, err
	}
	leased, err := s.leaseOf(ctx, report)
	if metering.CodeOf(err) == metering.CodeConflict {
		return passes.Ending{}, nil // another attempt has decided the report
	}
	if err != nil {
		return passes.Ending{}, err
	}
	sent, err := s.send(ctx, s.tenant, leased)
	switch {
	case err != nil:
		return passes.Ending{}, s.release(ctx, s.tenant, leased, sent.newKey, err)
	case sent.Refused:
		return passes.Ending{}, s.releaseRefused(ctx, s.tenant, leased, sent.refusal)
	case sent.State == billing.Accepted:
		s.accepted, s.kind = &ledger.Accepted{Report: report.ID, Response: sent.Response}, leased.Kind
		return passes.Ending{Accepted: true}, nil
	}
	err = errors.Join(s.complete(ctx, s.tenant, leased, sent.SendReportResult), sent.refusal)
	if err == nil && sent.State == billing.InDoubt {
		err = metering.Errorf(metering.CodeProviderRefuse, "%s", sent.Response).Because(providers.OwnRefusal{})
	}
	return passes.Ending{Refused: sent.State == billing.Rejected}, err
}

// leaseOf leases a report, unless the plan has already leased it.
func (s *batchSteps) leaseOf(ctx context.Context, report passes.Report) (ledger.Leased, error) {
	if l := s.leased; l != nil && l.ReportID == report.ID {
		return *l, nil
	}
	return s.store.Ledger.Lease(ctx, s.tenant, report.ID, s.now(), s.leaseTime())
}

// Count ignores an unavailable provider, because a later pass checks the counts again.
func (s *batchSteps) Count(ctx context.Context) error {
	if err := s.flush(ctx); err != nil {
		return err
	}
	_, err := s.checkCounts(ctx, s.customer)
	if metering.CodeOf(err) == metering.CodeProviderDown {
		return nil
	}
	return err
}

// flush records the last accepted report.
func (s *batchSteps) flush(ctx context.Context) error {
	if s.accepted == nil {
		return nil
	}
	last := *s.accepted
	s.accepted = nil
	err := s.store.Ledger.Complete(context.WithoutCancel(ctx), s.tenant, last.Report, billing.Accepted, last.Response, s.now())
	return s.metrics.countReport(s.kind, billing.Accepted, err)
}

// record stores a successful sync, together with the last accepted report if that is not recorded
// yet.
func (s *batchSteps) record(ctx context.Context, passed passes.Result) error {
	answer := ledger.Answer{Reports: passed.Reports, Excluded: s.excluded}
	if s.accepted == nil {
		return s.metrics.countSyncs("", 1, s.store.Syncs.Record(ctx, s.tenant, s.customer.CustomerID, answer, s.began, s.now()))
	}
	err := s.store.Syncs.RecordAccepted(ctx, s.tenant, s.customer.CustomerID, *s.accepted, answer, s.began, s.now())
	return s.metrics.countSyncs("", 1, s.metrics.countReport(s.kind, billing.Accepted, err))
}

// CloseBatchResult counts the closed periods.
type CloseBatchResult struct {
	Closed int                   `json:"closed"`
	Open   []metering.CustomerID `json:"open"` // customers with a due period that waits for a backfill or failed to close
}

// DuePeriods returns the next customers with a period to close.
func (a *Activities) DuePeriods(ctx context.Context, in CustomerPageInput) (CustomerPageResult, error) {
	defer sendHeartbeats(ctx)()
	page, err := a.store.Ledger.DuePeriods(ctx, in.TenantID, in.After, in.Limit, a.now())
	return CustomerPageResult(page), err
}

// closedAtOnce is the maximum number of customers for which one transaction closes periods. It is small, because the
// tenant's ingest waits while the transaction writes.
const closedAtOnce = 3

// CloseBatch closes the due periods of customers, even if the provider has not accepted all their
// usage.
func (a *Activities) CloseBatch(ctx context.Context, in BatchInput) (CloseBatchResult, error) {
	defer sendHeartbeats(ctx)()
	var result CloseBatchResult
	for few := range slices.Chunk(in.Customers, closedAtOnce) {
		f, err := a.closeFew(ctx, in.TenantID, few)
		if err != nil {
			return CloseBatchResult{}, err
		}
		result.Closed += f.Closed
		result.Open = append(result.Open, f.Open...)
		activity.RecordHeartbeat(ctx)
	}
	return result, nil
}

// closeFew closes the periods of customers in one transaction. If the transaction fails because of
// a customer, it repeats the closing customer by customer, so that only the failing customer's
// periods stay open.
func (a *Activities) closeFew(ctx context.Context, tenant metering.TenantID, few []metering.CustomerID) (ledger.Closing, error) {
	closed, err := a.store.Ledger.ClosePeriods(ctx, tenant, few, a.now())
	if err == nil || ctx.Err() != nil || isDatabaseError(err) {
		return closed, err
	}
	if len(few) == 1 {
		activity.GetLogger(ctx).Error("the billing periods of a customer cannot be closed", "tenant", tenant, "customer", few[0], "error", err)
		return ledger.Closing{Open: few}, nil
	}
	for alone := range slices.Chunk(few, 1) {
		one, err := a.closeFew(ctx, tenant, alone)
		if err != nil {
			return ledger.Closing{}, err
		}
		closed.Closed += one.Closed
		closed.Open = append(closed.Open, one.Open...)
	}
	return closed, nil
}

// isDatabaseError reports whether an error comes from the database rather than from a customer. After an error of the
// database, Temporal retries the activity.
func isDatabaseError(err error) bool {
	code := metering.CodeOf(err)
	return code == metering.CodeUnavailable || code == metering.CodeOverloaded
}
