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

// DuePageInput asks for a tenant's next customers, by id.
type DuePageInput struct {
	TenantID metering.TenantID   `json:"tenant_id"`
	After    metering.CustomerID `json:"after"`
	Limit    int                 `json:"limit"`
}

// DuePageResult is who has to be looked at. The next page begins after Last.
type DuePageResult struct {
	Customers []metering.CustomerID `json:"customers"`
	Last      metering.CustomerID   `json:"last"`
	More      bool                  `json:"more"`
}

// DueCustomers finds customers whose provider does not know of everything.
func (a *Activities) DueCustomers(ctx context.Context, in DuePageInput) (DuePageResult, error) {
	defer alive(ctx)()
	page, err := a.store.Ledger.Due(ctx, in.TenantID, in.After, in.Limit, a.now())
	return DuePageResult(page), err
}

// SyncChunkInput is some customers of a tenant.
type SyncChunkInput struct {
	TenantID  metering.TenantID     `json:"tenant_id"`
	Customers []metering.CustomerID `json:"customers"`
}

// SyncChunkResult is what a chunk did. A request of each failed customer is
// open, so that a run of its own can say what is wrong.
type SyncChunkResult struct {
	Customers int                   `json:"customers"`
	Sent      int                   `json:"sent"` // snapshots
	Busy      int                   `json:"busy"` // customers that somebody else is syncing
	Failed    []metering.CustomerID `json:"failed"`
}

// chunkProgress is the heartbeat of SyncChunk: where another attempt goes on.
type chunkProgress struct {
	Done   int             `json:"done"`
	Result SyncChunkResult `json:"result"`
}

// SyncChunk brings customers' usage to the provider, a few at once. A
// customer that fails on its own is left to a run of its own. A failure of the
// provider itself ends the attempt: the next one goes on where it stopped.
func (a *Activities) SyncChunk(ctx context.Context, in SyncChunkInput) (SyncChunkResult, error) {
	c := &chunk{Activities: a, tenant: in.TenantID}
	if activity.HasHeartbeatDetails(ctx) {
		if err := activity.GetHeartbeatDetails(ctx, &c.progress); err != nil {
			c.progress = chunkProgress{}
		}
	}
	provider, err := a.store.Providers.Active(ctx, in.TenantID)
	if err != nil {
		return SyncChunkResult{}, err
	}
	kind, err := a.providers.Of(provider.Kind)
	if err != nil {
		return SyncChunkResult{}, err
	}
	c.provider = kind.Describe()
	rest := in.Customers[min(c.progress.Done, len(in.Customers)):]
	if c.sequences, err = a.store.Ledger.Sequences(ctx, in.TenantID, rest); err != nil {
		return SyncChunkResult{}, err
	}
	for few := range slices.Chunk(rest, c.provider.AtOnce) {
		stop := alive(ctx, c.progress)
		err := c.takeAll(ctx, few)
		stop()
		activity.RecordHeartbeat(ctx, c.progress)
		if err != nil {
			return SyncChunkResult{}, err
		}
	}
	err = c.endSilence(ctx)
	return c.progress.Result, err
}

type chunk struct {
	*Activities
	tenant    metering.TenantID
	provider  providers.Description
	sequences map[metering.CustomerID]int64 // used before the chunk
	progress  chunkProgress
	silent    metering.CustomerID // the provider did not answer for it; is it the customer or the provider?
}

// takeAll syncs a few customers at once and judges them in their order.
func (c *chunk) takeAll(ctx context.Context, customers []metering.CustomerID) error {
	sent, failures := make([]int, len(customers)), make([]error, len(customers))
	var syncing sync.WaitGroup
	for i, customer := range customers {
		syncing.Go(func() { sent[i], failures[i] = c.sync(ctx, customer) })
	}
	syncing.Wait()
	for _, n := range sent {
		c.progress.Result.Sent += n
	}
	for i, customer := range customers {
		if err := c.judge(ctx, customer, failures[i]); err != nil {
			return err
		}
	}
	return nil
}

// judge says what came of one customer's sync. Its error is one of the
// provider or the database.
func (c *chunk) judge(ctx context.Context, customer metering.CustomerID, err error) error {
	switch metering.CodeOf(err) {
	case "":
		return c.done(ctx)
	case metering.CodeOverloaded:
		var busy db.Busy
		if !errors.As(err, &busy) {
			return err
		}
		c.progress.Result.Busy++
		return c.done(ctx)
	case metering.CodeProviderDown:
		if c.silent != 0 {
			return err // for two customers in a row: it is the provider
		}
		c.silent = customer
		return nil
	case metering.CodeProviderRefuse:
		var own providers.OwnRefusal
		if !errors.As(err, &own) {
			return err
		}
		if err := c.fail(ctx, customer); err != nil {
			return err
		}
		return c.done(ctx)
	}
	return err
}

// done counts a customer; a silence before it was that customer's own.
func (c *chunk) done(ctx context.Context) error {
	if err := c.endSilence(ctx); err != nil {
		return err
	}
	c.progress.Done++
	c.progress.Result.Customers++
	return nil
}

// endSilence tries the customer again for whom the provider did not answer:
// perhaps it was just away. If not, it is that customer's own failure.
func (c *chunk) endSilence(ctx context.Context) error {
	if c.silent == 0 {
		return nil
	}
	sent, err := c.sync(ctx, c.silent)
	if err != nil {
		err = c.fail(ctx, c.silent)
	}
	if err != nil {
		return err
	}
	c.silent = 0
	c.progress.Done++
	c.progress.Result.Customers++
	c.progress.Result.Sent += sent
	return nil
}

func (c *chunk) fail(ctx context.Context, customer metering.CustomerID) error {
	if !slices.Contains(c.progress.Result.Failed, customer) {
		c.progress.Result.Failed = append(c.progress.Result.Failed, customer)
	}
	return c.store.Syncs.RequestOnce(ctx, c.tenant, customer, c.now())
}

// sync tells the provider everything that is new about a customer, and keeps a
// record of it if that was anything.
func (c *chunk) sync(ctx context.Context, customer metering.CustomerID) (sent int, err error) {
	began := c.now()
	if !c.provider.Statements {
		return c.tellAll(ctx, customer)
	}
	for {
		prepared, delivery, err := c.store.Ledger.TakeSnapshot(ctx, c.tenant, customer, c.sequences[customer], c.providers.Frame, c.now(), c.lease())
		if err != nil {
			return sent, err
		}
		answer := db.Answer{Snapshots: prepared.UpToDate, Skipped: prepared.Skipped}
		if prepared.Send == nil && sent == 0 {
			return 0, nil
		}
		if prepared.Send == nil {
			return sent, c.record(ctx, customer, answer, began)
		}
		snapshot := DeliverSnapshotInput{TenantID: c.tenant, SnapshotID: prepared.Send.ID}
		said, err := c.attempt(ctx, snapshot, delivery)
		if err != nil {
			return sent, err
		}
		sent++
		if prepared.Last {
			answer.Snapshots = append(answer.Snapshots, prepared.Send.ID)
			return sent, c.recordDelivery(ctx, customer, snapshot, said, answer, began)
		}
		if err := c.SettleSnapshot(ctx, SettleSnapshotInput{TenantID: c.tenant, SnapshotID: prepared.Send.ID, Answer: said}); err != nil {
			return sent, err
		}
	}
}

func (c *chunk) record(ctx context.Context, customer metering.CustomerID, answer db.Answer, began time.Time) error {
	return c.metrics.synced("", 1, c.store.Syncs.Record(ctx, c.tenant, customer, answer, began, c.now()))
}

func (c *chunk) recordDelivery(ctx context.Context, customer metering.CustomerID, s DeliverSnapshotInput, said string, answer db.Answer, began time.Time) error {
	err := c.store.Syncs.RecordDelivery(ctx, c.tenant, customer, s.SnapshotID, said, answer, began, c.now())
	return c.metrics.synced("", 1, c.metrics.settled("snapshot", string(db.Acknowledged), err))
}

// CloseChunkResult is what came of closing.
type CloseChunkResult struct {
	Closed int                   `json:"closed"` // periods
	Open   []metering.CustomerID `json:"open"`   // customers with a due period that has to wait
}

// DuePeriods finds customers with a period that should be closed.
func (a *Activities) DuePeriods(ctx context.Context, in DuePageInput) (DuePageResult, error) {
	defer alive(ctx)()
	page, err := a.store.Ledger.DuePeriods(ctx, in.TenantID, in.After, in.Limit, a.now())
	return DuePageResult(page), err
}

// closedAtOnce is how many customers' periods one transaction closes, while
// the tenant's ingest waits.
const closedAtOnce = 10

// CloseChunk closes the due periods of customers whose usage the provider
// has acknowledged.
func (a *Activities) CloseChunk(ctx context.Context, in SyncChunkInput) (CloseChunkResult, error) {
	defer alive(ctx)()
	var result CloseChunkResult
	for few := range slices.Chunk(in.Customers, closedAtOnce) {
		f, err := a.store.Ledger.ClosePeriods(ctx, in.TenantID, few, a.now())
		if err != nil {
			return CloseChunkResult{}, err
		}
		result.Closed += f.Closed
		result.Open = append(result.Open, f.Open...)
		activity.RecordHeartbeat(ctx)
	}
	return result, nil
}
