package db_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// heldBiller returns a biller with invoice holds turned on, and the draft invoice of a period that ended
// an hour ago.
func heldBiller(t *testing.T) (b *biller, in metering.Invoice) {
	t.Helper()
	return holdingBiller(newBiller(t))
}

// holdingBiller turns invoice holds on for the biller's tenant, with Stripe as its provider. It stores
// the draft invoice of a period that ended an hour ago, and returns the biller and the invoice.
func holdingBiller(b *biller) (_ *biller, in metering.Invoice) {
	t := b.TB
	t.Helper()
	b.connectTo(metering.Provider{Kind: metering.Stripe, Invoices: true, Account: "acct_1"})
	on := true
	_, _, err := b.store.Tenants.Update(t.Context(), b.tenant, metering.Operator, db.TenantChange{InvoiceHold: &on})
	require.NoError(t, err)
	end := b.now.UTC().Add(-time.Hour).Truncate(time.Second)
	in = b.bill("in_1", metering.Range{Start: end.AddDate(0, -1, 0), End: end}, b.line("10", "3"))
	b.save(in, b.now)
	return b, in
}

// draftOf returns the draft of an invoice as its provider shows it.
func draftOf(in metering.Invoice) (d billing.Draft) {
	d.Automatic, d.Currency, d.FinalizedAt = true, in.Currency, in.FinalizedAt
	for _, l := range in.Lines {
		d.Lines = append(d.Lines, billing.DraftLine{ID: l.ID, MeterID: l.MeterID, Item: l.Item, Price: l.Price, Metered: true, Quantity: l.Quantity, Amount: l.Amount})
	}
	return d
}

func frameHold(until time.Time) (billing.Framed, error) {
	return billing.Framed{Body: fmt.Appendf(nil, `{"until":%q}`, until.UTC().Format(time.RFC3339))}, nil
}

func frameRelease() (billing.Framed, error) {
	return billing.Framed{Body: []byte(`{"action":"release"}`)}, nil
}

func (b *biller) beginHold(in metering.Invoice, d billing.Draft) metering.HoldID {
	b.Helper()
	id, err := b.store.Holds.Begin(b.Context(), b.tenant, ledger.NewHold{Customer: b.customer.ID, Invoice: in, Draft: d, Frame: frameHold}, b.now)
	require.NoError(b, err)
	return id
}

func (b *biller) lookAt(id metering.HoldID) ledger.HoldLook {
	b.Helper()
	look, err := b.store.Holds.Look(b.Context(), b.tenant, id, nil, b.now)
	require.NoError(b, err)
	look.Facts.Draft = look.Facts.Before
	look.Facts.Draft.Automatic, look.Facts.Draft.FinalizesAt = true, look.Deadline
	return look
}

// takenHold begins and sends a hold, and returns its id. The provider accepts the hold.
func (b *biller) takenHold(in metering.Invoice) metering.HoldID {
	b.Helper()
	id := b.beginHold(in, draftOf(in))
	look := b.lookAt(id)
	b.decide(look, billing.HoldDecision{State: billing.HoldPlanned, SendHold: true})
	b.lease(look.Hold.Hold.ID)
	b.complete(look.Hold.Hold.ID, billing.Accepted)
	return id
}

func (b *biller) decide(look ledger.HoldLook, d billing.HoldDecision) uuid.UUID {
	b.Helper()
	send, err := b.store.Holds.Decided(b.Context(), b.tenant, look, d, frameRelease, b.now)
	require.NoError(b, err)
	return send
}

func TestHoldIsStoredOnceBeforeItIsSent(t *testing.T) {
	t.Parallel()
	b, in := heldBiller(t)
	var begun [5]metering.HoldID
	var all sync.WaitGroup
	for i := range begun {
		all.Go(func() { begun[i] = b.beginHold(in, draftOf(in)) })
	}
	all.Wait()
	holds, err := dbtest.Items(b.store.Holds.List(t.Context(), b.tenant, ledger.HoldFilter{}, 10))
	require.NoError(t, err)
	require.Len(t, holds, 1)
	hold := holds[0]
	for _, id := range begun {
		require.Contains(t, []metering.HoldID{0, hold.ID}, id)
	}
	require.Equal(t, billing.HoldPlanned, hold.State)
	require.Equal(t, in.Period.End.Add(72*time.Hour), hold.GraceUntil)
	require.Equal(t, in.Period.End.Add(120*time.Hour), hold.Deadline)
	require.Equal(t, billing.Planned, hold.Hold.State)
	require.JSONEq(t, fmt.Sprintf(`{"until":%q}`, hold.Deadline.UTC().Format(time.RFC3339)), string(b.body(hold.Hold.ID)))
	open, err := b.store.Holds.OpenOf(t.Context(), b.tenant, b.connection, in.ID)
	require.NoError(t, err)
	require.Equal(t, hold.ID, open)

	look := b.lookAt(hold.ID)
	require.Equal(t, draftOf(in).Lines[0].ID, look.Facts.Before.Lines[0].ID)
	require.Equal(t, hold.Hold.ID, b.decide(look, billing.HoldDecision{State: billing.HoldPlanned, SendHold: true}))
	leased := b.lease(hold.Hold.ID)
	require.Equal(t, billing.ActionReport, leased.Kind)
	require.Equal(t, billing.Replaces, leased.Counting)
	require.Equal(t, in.ID, leased.Target)
	require.Empty(t, b.plan(anew).Send, "a sync sends no report of a hold")
	b.complete(hold.Hold.ID, billing.Accepted)
	require.Equal(t, billing.Accepted, b.lookAt(hold.ID).Facts.Hold.State)
}

func TestDraftIsNotHeldWithoutMeterLineOrAfterDeadline(t *testing.T) {
	t.Parallel()
	b, in := heldBiller(t)
	foreign := draftOf(in)
	foreign.Lines[0].MeterID = 0
	require.Zero(t, b.beginHold(in, foreign), "no line bills a meter")
	off := false
	_, _, err := b.store.Tenants.Update(t.Context(), b.tenant, metering.Operator, db.TenantChange{InvoiceHold: &off})
	require.NoError(t, err)
	require.Zero(t, b.beginHold(in, draftOf(in)), "the tenant has turned holds off")
	holds, err := dbtest.Items(b.store.Holds.List(t.Context(), b.tenant, ledger.HoldFilter{}, 10))
	require.NoError(t, err)
	require.Empty(t, holds)

	on := true
	_, _, err = b.store.Tenants.Update(t.Context(), b.tenant, metering.Operator, db.TenantChange{InvoiceHold: &on})
	require.NoError(t, err)
	b.now = b.now.Add(6 * 24 * time.Hour)
	require.Zero(t, b.beginHold(in, draftOf(in)))
	holds, err = dbtest.Items(b.store.Holds.List(t.Context(), b.tenant, ledger.HoldFilter{State: billing.HoldRefused}, 10))
	require.NoError(t, err)
	require.Len(t, holds, 1, "the hold shows that the deadline had passed")
	require.NotNil(t, holds[0].EndedAt)
	require.Empty(t, holds[0].Hold.State, "no hold report was sent")
}

func TestDraftsThatAreHeldAreCounted(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	counted := func() map[billing.HoldState]int64 {
		state, err := store.Maintenance.State(t.Context(), clock.Now())
		require.NoError(t, err)
		return state.Holds
	}
	require.Equal(t, map[billing.HoldState]int64{"planned": 0, "held": 0, "disagrees": 0, "releasing": 0}, counted())
	b, in := holdingBiller(newBillerAt(t, store, address))
	id := b.beginHold(in, draftOf(in))
	b.decide(b.lookAt(id), billing.HoldDecision{State: billing.HoldDisagrees})
	require.Equal(t, map[billing.HoldState]int64{"planned": 0, "held": 0, "disagrees": 1, "releasing": 0}, counted())
	b.decide(b.lookAt(id), billing.HoldDecision{State: billing.HoldExpired})
	require.Zero(t, counted()[billing.HoldDisagrees])
}

func TestReleaseOfHoldIsStoredOnceBeforeItIsSent(t *testing.T) {
	t.Parallel()
	b, in := heldBiller(t)
	id := b.takenHold(in)

	agreed := billing.HoldDecision{State: billing.HoldReleasing, Release: true}
	look := b.lookAt(id)
	release := b.decide(look, agreed)
	_, err := b.store.Holds.Decided(t.Context(), b.tenant, look, agreed, frameRelease, b.now)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err), "another decision was made on the same look")
	again := b.lookAt(id)
	require.Equal(t, release, b.decide(again, agreed), "the report is outstanding, so the same report is sent again")
	b.lease(release)
	_, err = b.store.Ledger.Lease(t.Context(), b.tenant, release, b.now, lease)
	require.Equal(t, metering.CodeOverloaded, metering.CodeOf(err))

	b.now = b.now.Add(lease)
	disagrees := billing.HoldDecision{
		State: billing.HoldDisagrees, Reasons: []billing.HoldReason{{Code: billing.HoldSyncFailed}}, Settle: []billing.Resolved{{ID: release, State: billing.Rejected}},
	}
	_, err = b.store.Webhooks.Create(t.Context(), b.tenant, metering.Operator, metering.Endpoint{
		URL: "https://example.com/hook", EventTypes: metering.MessageKind("").Values(), Sealed: []byte("sealed"), LastFour: "abcd",
	}, b.now)
	require.NoError(t, err)
	seen := b.lookAt(id)
	b.decide(seen, disagrees)
	_, err = b.store.Holds.Decided(t.Context(), b.tenant, seen, disagrees, frameRelease, b.now)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err), "another decision was made on the same look")
	b.decide(b.lookAt(id), billing.HoldDecision{State: billing.HoldDisagrees, Reasons: disagrees.Reasons})
	var published []string
	b.scan(`select array_agg(kind || ' ' || (payload->>'hold_id')) from outbox where tenant_id = $1`, []any{b.tenant}, &published)
	require.Equal(t, []string{"invoice.held " + id.String()}, published, "one message for the difference")
	state, response := b.state(release)
	require.Equal(t, billing.Rejected, state)
	require.Equal(t, billing.Withdrawn, response)
	second := b.decide(b.lookAt(id), agreed)
	require.NotEqual(t, release, second)
	b.lease(second)
	b.complete(second, billing.Accepted)
	b.decide(b.lookAt(id), billing.HoldDecision{State: billing.HoldReleased})
	hold, err := b.store.Holds.Get(t.Context(), b.tenant, id)
	require.NoError(t, err)
	require.Equal(t, billing.HoldReleased, hold.State)
	require.NotNil(t, hold.EndedAt)
	open, err := b.store.Holds.Open(t.Context(), b.now.Add(time.Hour))
	require.NoError(t, err)
	require.NotContains(t, open, ledger.OpenHold{Tenant: b.tenant, Customer: b.customer.ID, ID: id})
}

func TestHoldReasonsAreKeptAfterOperatorReleasesInvoice(t *testing.T) {
	t.Parallel()
	b, in := heldBiller(t)
	id := b.takenHold(in)
	found := []billing.HoldReason{{Code: billing.HoldSyncFailed}}
	b.decide(b.lookAt(id), billing.HoldDecision{State: billing.HoldDisagrees, Reasons: found})
	b.decide(b.lookAt(id), billing.HoldDecision{State: billing.Held})
	require.Empty(t, b.lookAt(id).Reasons, "the finding is gone")
	b.decide(b.lookAt(id), billing.HoldDecision{State: billing.HoldDisagrees, Reasons: found})

	_, err := b.store.Holds.AskRelease(t.Context(), b.tenant, "key_1", id, "it is right", b.now)
	require.NoError(t, err)
	release := b.decide(b.lookAt(id), billing.HoldDecision{State: billing.HoldReleasing, Release: true})
	require.Equal(t, found, b.lookAt(id).Reasons)
	b.lease(release)
	b.complete(release, billing.Accepted)
	b.decide(b.lookAt(id), billing.HoldDecision{State: billing.HoldReleased})
	require.Equal(t, found, b.lookAt(id).Reasons)
}

// TestAnExcludedMeterOfAHoldIsClearedByALaterSync requests a sync for a hold, which excludes the meter. A later sync
// reports the meter.
func TestAnExcludedMeterOfAHoldIsClearedByALaterSync(t *testing.T) {
	t.Parallel()
	b, in := heldBiller(t)
	id := b.takenHold(in)
	excluded := billing.Exclusion{MeterID: b.meter.ID, MeterSlug: b.meter.Slug, ExclusionReason: billing.NoTarget("no subscription item has its price")}
	earlier := b.request()
	b.finish(b.begin().PassID, ledger.Answer{})
	requested := b.request()
	synced := func() billing.HeldSync {
		look, err := b.store.Holds.Look(t.Context(), b.tenant, id, &requested, b.now)
		require.NoError(t, err)
		return look.Facts.Sync
	}
	require.Equal(t, billing.HeldSync{Status: metering.SyncRequested}, synced(), "%s is earlier", earlier)
	b.finish(b.begin().PassID, ledger.Answer{Excluded: []billing.Exclusion{excluded}})
	require.Equal(t, billing.HeldSync{Status: metering.SyncSucceeded, Excluded: []billing.Exclusion{excluded}}, synced())

	b.request()
	require.Len(t, synced().Excluded, 1)
	failed := b.begin().PassID
	require.Len(t, synced().Excluded, 1)
	b.finish(failed, ledger.Answer{Error: "the provider answered 500"})
	require.Len(t, synced().Excluded, 1)
	b.request()
	b.finish(b.begin().PassID, ledger.Answer{})
	require.Equal(t, billing.HeldSync{Status: metering.SyncSucceeded}, synced())
}

func TestRepeatedReleaseRequestIsAuditedOnce(t *testing.T) {
	t.Parallel()
	b, in := heldBiller(t)
	id := b.beginHold(in, draftOf(in))
	for range 2 {
		hold, err := b.store.Holds.AskRelease(t.Context(), b.tenant, "key_1", id, "it is right", b.now)
		require.NoError(t, err)
		require.Equal(t, "it is right", hold.Note)
		require.Equal(t, metering.Actor("key_1"), hold.Actor)
	}
	require.Equal(t, []string{id.String()}, b.audited("hold.release"))
	require.True(t, b.lookAt(id).Facts.Asked)
	look := b.lookAt(id)
	b.decide(look, billing.HoldDecision{State: billing.HoldTheirs})
	_, err := b.store.Holds.AskRelease(t.Context(), b.tenant, "key_1", id, "it is right", b.now)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	_, err = b.store.Holds.AskRelease(t.Context(), b.tenant, "key_1", id+1000, "it is right", b.now)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
}
