package activities

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"
	"go.temporal.io/sdk/activity"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
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

// SyncChunk brings customers' usage to the provider, one after the other. A
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
	c.provider = provider.Kind
	rest := in.Customers[min(c.progress.Done, len(in.Customers)):]
	if c.sequences, err = a.store.Ledger.Sequences(ctx, in.TenantID, rest); err != nil {
		return SyncChunkResult{}, err
	}
	for _, customer := range rest {
		stop := alive(ctx, c.progress)
		err := c.take(ctx, customer)
		stop()
		if err != nil {
			return SyncChunkResult{}, err
		}
		activity.RecordHeartbeat(ctx, c.progress)
	}
	return c.progress.Result, c.endSilence(ctx)
}

type chunk struct {
	*Activities
	tenant    metering.TenantID
	provider  metering.ProviderKind
	sequences map[metering.CustomerID]int64 // used before the chunk
	progress  chunkProgress
	silent    metering.CustomerID // the provider did not answer for it; is it the customer or the provider?
}

// take syncs one customer. Its error is one of the provider or the database.
func (c *chunk) take(ctx context.Context, customer metering.CustomerID) error {
	sent, err := c.sync(ctx, customer)
	switch metering.CodeOf(err) {
	case "":
		c.progress.Result.Sent += sent
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
		var own ownRefusal
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

// ownRefusal is the cause where the provider refused one customer's message.
type ownRefusal struct{ status int }

func (o ownRefusal) Error() string { return "refused for this customer" }

// sync tells the provider everything that is new about a customer, and keeps a
// record of it if that was anything.
func (c *chunk) sync(ctx context.Context, customer metering.CustomerID) (sent int, err error) {
	began := c.now()
	if c.provider == metering.Stripe {
		return c.tellAll(ctx, customer)
	}
	var answer db.Answer
	for {
		prepared, err := c.store.Ledger.PrepareSnapshot(ctx, c.tenant, customer, c.sequences[customer], c.now())
		if err != nil {
			return sent, err
		}
		if prepared.Send == nil {
			answer.Snapshots, answer.Skipped = append(answer.Snapshots, prepared.UpToDate...), prepared.Skipped
			break
		}
		overtaken, err := c.deliverOne(ctx, prepared.Send.ID)
		if err != nil {
			return sent, err
		}
		if !overtaken {
			sent++
		}
	}
	if sent == 0 {
		return 0, nil
	}
	return sent, c.store.Syncs.Record(ctx, c.tenant, customer, answer, began, c.now())
}

// deliverOne sends a snapshot and settles it. overtaken says that somebody
// else has settled it, or its account was replaced.
func (c *chunk) deliverOne(ctx context.Context, snapshot uuid.UUID) (overtaken bool, err error) {
	answer, err := c.send(ctx, DeliverSnapshotInput{TenantID: c.tenant, SnapshotID: snapshot})
	var coded *metering.Error
	switch {
	case metering.CodeOf(err) == metering.CodeConflict:
		return true, nil
	case errors.As(err, &coded) && coded.Code == metering.CodeProviderRefuse && answer.AboutMessage():
		return false, coded.Because(errors.Join(coded.Unwrap(), ownRefusal{answer.Status}))
	case err != nil:
		return false, err
	}
	return false, c.SettleSnapshot(ctx, SettleSnapshotInput{TenantID: c.tenant, SnapshotID: snapshot, Status: answer.Status})
}

// FreezeChunkResult is what came of freezing.
type FreezeChunkResult struct {
	Frozen int                   `json:"frozen"` // periods
	Open   []metering.CustomerID `json:"open"`   // customers with a due period that has to wait
}

// DuePeriods finds customers with a period that should be frozen.
func (a *Activities) DuePeriods(ctx context.Context, in DuePageInput) (DuePageResult, error) {
	defer alive(ctx)()
	page, err := a.store.Ledger.DuePeriods(ctx, in.TenantID, in.After, in.Limit, a.now())
	return DuePageResult(page), err
}

// frozenAtOnce is how many customers' periods one transaction freezes, while
// the tenant's ingest waits.
const frozenAtOnce = 10

// FreezeChunk freezes the due periods of customers whose usage the provider
// has acknowledged.
func (a *Activities) FreezeChunk(ctx context.Context, in SyncChunkInput) (FreezeChunkResult, error) {
	defer alive(ctx)()
	var result FreezeChunkResult
	for few := range slices.Chunk(in.Customers, frozenAtOnce) {
		f, err := a.store.Ledger.Freeze(ctx, in.TenantID, few, a.now())
		if err != nil {
			return FreezeChunkResult{}, err
		}
		result.Frozen += f.Frozen
		result.Open = append(result.Open, f.Open...)
		activity.RecordHeartbeat(ctx)
	}
	return result, nil
}
