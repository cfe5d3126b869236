package activities

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// CustomerPageInput asks for a tenant's next customers, by id.
type CustomerPageInput struct {
	TenantID metering.TenantID   `json:"tenant_id"`
	After    metering.CustomerID `json:"after"`
	Limit    int                 `json:"limit"`
	Closed   bool                `json:"closed,omitempty"` // only those with a closed period that is not complete
}

// CustomerPageResult is who has to be looked at. The next page begins after Last.
type CustomerPageResult struct {
	Customers []metering.CustomerID `json:"customers"`
	Last      metering.CustomerID   `json:"last"`
	More      bool                  `json:"more"`
}

// FindOutOfSync finds customers whose provider does not know of everything.
func (a *Activities) FindOutOfSync(ctx context.Context, in CustomerPageInput) (CustomerPageResult, error) {
	defer alive(ctx)()
	find := a.store.Ledger.OutOfSync
	if in.Closed {
		find = a.store.Ledger.OutOfSyncClosed
	}
	page, err := find(ctx, in.TenantID, in.After, in.Limit, a.now())
	return CustomerPageResult(page), err
}

// BatchInput is some customers of a tenant.
type BatchInput struct {
	TenantID  metering.TenantID     `json:"tenant_id"`
	Customers []metering.CustomerID `json:"customers"`
}

// SyncBatchResult is what came of a batch. A request of each failed customer is
// open, so that a run of its own can say what is wrong.
type SyncBatchResult struct {
	Customers int                   `json:"customers"`
	Sent      int                   `json:"sent"` // reports
	Busy      int                   `json:"busy"` // customers that somebody else is syncing
	Failed    []metering.CustomerID `json:"failed"`
}

// sync reports everything that is new about a customer, and keeps a record of it
// if that was anything.
func (b *batch) sync(ctx context.Context, customer metering.CustomerID) (sent int, err error) {
	steps := &batchSteps{batch: b, ctx: ctx, customer: CustomerInput{b.tenant, customer}, began: b.now()}
	passed, err := Pass(steps, !b.provider.Statements)
	if err == nil && passed.Failure != "" {
		err = metering.Errorf(metering.CodeProviderRefuse, "%s", passed.Failure).Because(providers.OwnRefusal{})
	}
	if err != nil || passed.Sent == 0 {
		return passed.Sent, errors.Join(err, steps.flush())
	}
	return passed.Sent, steps.record(passed)
}

// batchSteps are those of a pass over one customer of a batch.
type batchSteps struct {
	*batch
	ctx      context.Context
	customer CustomerInput
	began    time.Time
	read     bool

	leased   *db.Leased   // the first report of the plan
	accepted *db.Accepted // to be recorded together with what comes next
	kind     billing.Kind // of what was accepted
	excluded []metering.ExcludedMeter
}

func (s *batchSteps) Read(again bool) (failure string, err error) {
	if s.read && !again {
		return "", nil
	}
	_, err = s.readProvider(s.ctx, ReadProviderInput{CustomerInput: s.customer})
	s.read = err == nil
	return "", err
}

func (s *batchSteps) Plan() (plan PlanReportsResult, failure string, err error) {
	if err := s.flush(); err != nil {
		return plan, "", err
	}
	pass := db.Pass{After: s.numbers[s.customer.CustomerID], Lease: s.lease()}
	planned, err := s.store.Ledger.Plan(s.ctx, s.tenant, s.customer.CustomerID, pass, s.providers.Frame, s.now())
	s.leased, s.excluded = planned.Leased, planned.Excluded
	return planOf(planned), "", err
}

// Send leaves what is refused undecided: the customer gets a run of its own,
// which shows operators what is wrong.
func (s *batchSteps) Send(report Report) (Ending, error) {
	if err := s.flush(); err != nil {
		return Ending{}, err
	}
	leased, err := s.leaseOf(report)
	if metering.CodeOf(err) == metering.CodeConflict {
		return Ending{}, nil // somebody else has decided on it
	}
	if err != nil {
		return Ending{}, err
	}
	sent, err := s.send(s.ctx, s.tenant, leased)
	switch {
	case err != nil:
		return Ending{}, s.release(s.ctx, s.tenant, leased, sent.newKey, err)
	case sent.Refused:
		return Ending{}, s.release(s.ctx, s.tenant, leased, false, sent.refusal)
	case sent.State == billing.Accepted:
		s.accepted, s.kind = &db.Accepted{Report: report.ID, Response: sent.Response}, leased.Kind
		return Ending{Accepted: true}, nil
	}
	err = errors.Join(s.complete(s.ctx, s.tenant, leased, sent.SendReportResult), sent.refusal)
	if err == nil && sent.State == billing.InDoubt {
		err = metering.Errorf(metering.CodeProviderRefuse, "%s", sent.Response).Because(providers.OwnRefusal{})
	}
	return Ending{Refused: sent.State == billing.Rejected}, err
}

// leaseOf leases a report, unless that was done when it was planned.
func (s *batchSteps) leaseOf(report Report) (db.Leased, error) {
	if l := s.leased; l != nil && l.ReportID == report.ID {
		return *l, nil
	}
	return s.store.Ledger.Lease(s.ctx, s.tenant, report.ID, s.now(), s.lease())
}

// Count may be in vain: what is not found now, a later pass will find.
func (s *batchSteps) Count() error {
	if err := s.flush(); err != nil {
		return err
	}
	_, err := s.count(s.ctx, s.customer)
	if metering.CodeOf(err) == metering.CodeProviderDown {
		return nil
	}
	return err
}

// flush records what was accepted last.
func (s *batchSteps) flush() error {
	if s.accepted == nil {
		return nil
	}
	last := *s.accepted
	s.accepted = nil
	err := s.store.Ledger.Complete(context.WithoutCancel(s.ctx), s.tenant, last.Report, billing.Accepted, last.Response, s.now())
	return s.metrics.reported(s.kind, billing.Accepted, err)
}

// record keeps a sync that has succeeded.
func (s *batchSteps) record(passed Passed) error {
	answer := db.Answer{Reports: passed.Reports, Excluded: s.excluded}
	if s.accepted == nil {
		return s.metrics.synced("", 1, s.store.Syncs.Record(s.ctx, s.tenant, s.customer.CustomerID, answer, s.began, s.now()))
	}
	err := s.store.Syncs.RecordAccepted(s.ctx, s.tenant, s.customer.CustomerID, *s.accepted, answer, s.began, s.now())
	return s.metrics.synced("", 1, s.metrics.reported(s.kind, billing.Accepted, err))
}

// CloseBatchResult is what came of closing.
type CloseBatchResult struct {
	Closed int                   `json:"closed"` // periods
	Open   []metering.CustomerID `json:"open"`   // customers with a due period that waits for a meter
}

// DuePeriods finds customers with a period that should be closed.
func (a *Activities) DuePeriods(ctx context.Context, in CustomerPageInput) (CustomerPageResult, error) {
	defer alive(ctx)()
	page, err := a.store.Ledger.DuePeriods(ctx, in.TenantID, in.After, in.Limit, a.now())
	return CustomerPageResult(page), err
}

// closedAtOnce is how many customers' periods one transaction closes, while
// the tenant's ingest waits.
const closedAtOnce = 3

// CloseBatch closes the due periods of customers, whatever the provider has
// accepted of them.
func (a *Activities) CloseBatch(ctx context.Context, in BatchInput) (CloseBatchResult, error) {
	defer alive(ctx)()
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

// closeFew closes customers' periods together or, where that fails, one by one:
// who fails alone stays open, and keeps nobody else from closing.
func (a *Activities) closeFew(ctx context.Context, tenant metering.TenantID, few []metering.CustomerID) (db.Closing, error) {
	closed, err := a.store.Ledger.ClosePeriods(ctx, tenant, few, a.now())
	if err == nil || ctx.Err() != nil || ofTheDatabase(err) {
		return closed, err
	}
	if len(few) == 1 {
		activity.GetLogger(ctx).Error("the billing periods of a customer cannot be closed", "tenant", tenant, "customer", few[0], "error", err)
		return db.Closing{Open: few}, nil
	}
	for alone := range slices.Chunk(few, 1) {
		one, err := a.closeFew(ctx, tenant, alone)
		if err != nil {
			return db.Closing{}, err
		}
		closed.Closed += one.Closed
		closed.Open = append(closed.Open, one.Open...)
	}
	return closed, nil
}

// ofTheDatabase says whether err is of no customer: it is tried again.
func ofTheDatabase(err error) bool {
	code := metering.CodeOf(err)
	return code == metering.CodeUnavailable || code == metering.CodeOverloaded
}
