package db_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

const lease = 25 * time.Second

// biller is a tenant with a customer, a meter and a provider, and a clock.
type biller struct {
	testing.TB
	store    *db.DB
	address  string // of the store
	writer   *db.Writer
	tenant   metering.TenantID
	customer metering.Customer
	meter    metering.Meter
	now      time.Time
}

func newBiller(t testing.TB) *biller {
	t.Helper()
	return newBillerAt(t, dbtest.Open(t), dbtest.URL(t))
}

func newBillerAt(t testing.TB, store *db.DB, address string) *biller {
	t.Helper()
	writer := db.NewWriter(store, db.WriterOptions{})
	t.Cleanup(writer.Close)
	tenant := dbtest.Tenant(t, store)
	b := &biller{TB: t, store: store, address: address, writer: writer, tenant: tenant.ID, now: clock.Now()}
	b.customer = dbtest.Customer(t, store, tenant.ID, "acme")
	b.meter = dbtest.Meter(t, store, tenant.ID, "api-calls", "api_call")
	b.useProvider("https://billing.example.com/usage")
	return b
}

func (b *biller) connect() *pgx.Conn {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), b.address)
	require.NoError(b, err)
	b.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func (b *biller) useProvider(url string) {
	b.Helper()
	_, err := b.store.Providers.Save(b.Context(), b.tenant, metering.Operator, metering.Provider{
		Kind: metering.Webhook, Statements: true, Account: url, SealedSecret: []byte("sealed"), LastFour: "abcd", ValidatedAt: b.now,
	})
	require.NoError(b, err)
}

func (b *biller) use(value string) { b.useAt(value, b.now) }

func (b *biller) useAt(value string, at time.Time) {
	b.Helper()
	_, err := b.writer.Ingest(b.Context(), b.tenant, []metering.Event{dbtest.Event(b, "api_call", "acme", at, value, "", "")})
	require.NoError(b, err)
}

func (b *biller) price(base, included, overage string) {
	b.Helper()
	_, err := b.store.Prices.Set(b.Context(), b.tenant, metering.Operator, billing.Price{
		MeterID: b.meter.ID, BasePrice: metering.MustDecimal(base), IncludedUnits: metering.MustDecimal(included),
		OverageRate: metering.MustDecimal(overage), Currency: "USD", EffectiveFrom: b.now,
	})
	require.NoError(b, err)
}

func (b *biller) prepare(after int64) db.Prepared {
	b.Helper()
	prepared, err := b.store.Ledger.PrepareSnapshot(b.Context(), b.tenant, b.customer.ID, after, dbtest.Frame, b.now)
	require.NoError(b, err)
	return prepared
}

func (b *biller) mark(s *db.Snapshot) db.Delivery {
	b.Helper()
	d, err := b.store.Ledger.MarkSent(b.Context(), b.tenant, s.ID, b.now, lease)
	require.NoError(b, err)
	return d
}

func (b *biller) settle(id uuid.UUID, outcome db.SnapshotStatus) {
	b.Helper()
	require.NoError(b, b.store.Ledger.Settle(b.Context(), b.tenant, id, outcome, "tested", b.now))
}

// acknowledge prepares, sends and settles one snapshot.
func (b *biller) acknowledge() message {
	b.Helper()
	prepared := b.prepare(1 << 62)
	require.NotNil(b, prepared.Send)
	d := b.mark(prepared.Send)
	b.settle(prepared.Send.ID, db.Acknowledged)
	return read(b, d.Body)
}

type message struct {
	Type string `json:"type"`
	Data struct {
		TenantID           string `json:"tenant_id"`
		CustomerExternalID string `json:"customer_external_id"`
		Period             struct{ Start, End time.Time }
		Sequence           int64
		Currency           string
		Meters             []struct {
			MeterID   string `json:"meter_id"`
			MeterSlug string `json:"meter_slug"`
			Usage     json.Number
			UnitPrice json.Number `json:"unit_price"`
			Amount    json.Number
			Currency  string
		}
		Adjustments []any
	}
}

func read(t testing.TB, body []byte) message {
	t.Helper()
	var m message
	require.NoError(t, json.Unmarshal(body, &m))
	return m
}

func TestASnapshotSaysWhatTheCustomerOwes(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.price("10", "100", "0.005")
	b.use("99.5")
	b.use("42.25") // 141.75 in all: 41.75 over, 0.20875 beyond the base price

	prepared := b.prepare(0)
	require.NotNil(t, prepared.Send)
	m := read(t, prepared.Send.Body)
	require.Equal(t, "usage.snapshot", m.Type)
	require.Equal(t, b.tenant.String(), m.Data.TenantID)
	require.Equal(t, "acme", m.Data.CustomerExternalID)
	month := billing.CalendarPeriod(b.now, time.UTC)
	require.True(t, m.Data.Period.Start.Equal(month.Start) && m.Data.Period.End.Equal(month.End))
	require.EqualValues(t, 1, m.Data.Sequence)
	require.Equal(t, "USD", m.Data.Currency)
	require.Len(t, m.Data.Meters, 1)
	require.Equal(t, b.meter.ID.String(), m.Data.Meters[0].MeterID)
	require.Equal(t, "api-calls", m.Data.Meters[0].MeterSlug)
	require.Equal(t, "141.75", m.Data.Meters[0].Usage.String())
	require.Equal(t, "0.005", m.Data.Meters[0].UnitPrice.String())
	require.Equal(t, "10.21", m.Data.Meters[0].Amount.String())
	require.Contains(t, string(prepared.Send.Body), `"adjustments":[]`)
	require.Contains(t, string(prepared.Send.Body), `"usage":141.75`)
}

func TestAnUnsettledSnapshotIsHandedOutAgain(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	first := b.prepare(0)
	b.use("1")
	again := b.prepare(0)
	require.Equal(t, first.Send, again.Send)
	require.Equal(t, first.Send.Body, b.mark(again.Send).Body)

	b.settle(first.Send.ID, db.Acknowledged)
	next := b.prepare(0)
	require.Nil(t, next.Send, "the pass has sent this period already")
	next = b.prepare(first.Send.Sequence)
	require.EqualValues(t, 2, next.Send.Sequence)
	require.Equal(t, "2", read(t, next.Send.Body).Data.Meters[0].Usage.String())
}

func TestWhatHasNotChangedIsNotSentAgain(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	b.acknowledge()
	prepared := b.prepare(1)
	require.Nil(t, prepared.Send)
	require.Len(t, prepared.UpToDate, 1)

	b.price("0", "0", "2")
	require.Equal(t, "2", b.acknowledge().Data.Meters[0].Amount.String(), "the first price holds from the beginning")
	b.use("-1")
	b.use("1")
	require.Equal(t, "1", b.acknowledge().Data.Meters[0].Usage.String(), "more events stand behind the same total")
	dbtest.Meter(t, b.store, b.tenant, "storage", "stored")
	require.Len(t, b.acknowledge().Data.Meters, 2, "a new meter is a change")
	require.Nil(t, b.prepare(1<<62).Send)
}

func TestARefusedSnapshotIsReplacedByTheNextSequence(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	refused := b.prepare(0).Send
	b.mark(refused)
	b.settle(refused.ID, db.Rejected)
	require.Nil(t, b.prepare(0).Send, "this pass has been told no")
	next := b.prepare(refused.Sequence)
	require.EqualValues(t, 2, next.Send.Sequence)
	_, err := b.store.Ledger.MarkSent(t.Context(), b.tenant, refused.ID, b.now, lease)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err), "a settled snapshot is never sent again")
}

func TestARefusedPeriodDoesNotHoldBackTheNext(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	b.now = billing.CalendarPeriod(b.now, time.UTC).End.Add(time.Hour)
	closed := b.prepare(0).Send
	b.mark(closed)
	b.settle(closed.ID, db.Rejected)
	next := b.prepare(0).Send
	require.True(t, next.Period.Start.Equal(closed.Period.End))
	b.mark(next)
	b.settle(next.ID, db.Acknowledged)
	done := b.prepare(0)
	require.Nil(t, done.Send)
	require.Equal(t, []uuid.UUID{next.ID}, done.UpToDate)
	require.True(t, b.prepare(next.Sequence).Send.Period.Start.Equal(closed.Period.Start), "the next pass tries it again")
}

func TestALeaseKeepsOthersFromSending(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	s := b.prepare(0).Send
	first := b.mark(s)
	b.now = b.now.Add(10 * time.Second)
	_, err := b.store.Ledger.MarkSent(t.Context(), b.tenant, s.ID, b.now, lease)
	var busy db.Busy
	require.ErrorAs(t, err, &busy)
	require.InDelta(t, 15*time.Second, busy.Wait, float64(time.Millisecond))

	require.NoError(t, b.store.Ledger.Release(t.Context(), b.tenant, s.ID, first.Attempt, "the webhook answered 503"))
	second := b.mark(s)
	require.Equal(t, first.Body, second.Body)
	require.NoError(t, b.store.Ledger.Release(t.Context(), b.tenant, s.ID, first.Attempt, "late"))
	_, err = b.store.Ledger.MarkSent(t.Context(), b.tenant, s.ID, b.now, lease)
	require.ErrorAs(t, err, &busy, "only the holder ends a lease")
	b.now = b.now.Add(lease)
	b.mark(s)
}

func TestASecondSettlementChangesNothing(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	s := b.prepare(0).Send
	b.mark(s)
	b.settle(s.ID, db.Acknowledged)
	b.settle(s.ID, db.Acknowledged)
	b.settle(s.ID, db.Rejected)
	require.Nil(t, b.prepare(s.Sequence).Send)
}

func TestANewSecretForTheSameAccountGoesOn(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	b.acknowledge()
	b.useProvider("https://billing.example.com/usage")
	require.Nil(t, b.prepare(1).Send)
	b.use("1")
	s := b.prepare(1).Send
	b.useProvider("https://billing.example.com/usage")
	require.Equal(t, "2", read(t, b.mark(s).Body).Data.Meters[0].Usage.String())
}

func TestAnotherAccountBillsOnlyWhatTheFirstHasNot(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.price("10", "0", "1")
	b.use("60")
	require.Equal(t, "70", b.acknowledge().Data.Meters[0].Amount.String())

	b.useProvider("https://other.example.com/")
	b.use("40")
	m := b.acknowledge()
	require.Equal(t, "40", m.Data.Meters[0].Usage.String())
	require.Equal(t, "40", m.Data.Meters[0].Amount.String())

	b.useProvider("https://billing.example.com/usage")
	require.Equal(t, "60", b.acknowledge().Data.Meters[0].Usage.String(), "the other keeps its 40")
	b.use("5")
	m = b.acknowledge()
	require.Equal(t, "65", m.Data.Meters[0].Usage.String())
	require.Equal(t, "75", m.Data.Meters[0].Amount.String())
}

func TestASnapshotForAReplacedAccountIsGivenUp(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("60")
	s := b.prepare(0).Send
	b.mark(s)
	b.useProvider("https://other.example.com/")
	require.Equal(t, s.ID, b.prepare(0).Send.ID, "somebody is sending it")
	b.now = b.now.Add(lease)
	_, err := b.store.Ledger.MarkSent(t.Context(), b.tenant, s.ID, b.now, lease)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	require.Equal(t, "60", b.acknowledge().Data.Meters[0].Usage.String())

	b.settle(s.ID, db.Acknowledged) // the first account's answer turns up late
	require.Equal(t, "0", b.acknowledge().Data.Meters[0].Usage.String(), "so the second takes it back")
}

func TestEachPeriodHasASnapshotOfItsOwnOldestFirst(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("1")
	this := billing.CalendarPeriod(b.now, time.UTC)
	b.now = this.End.Add(time.Hour)
	first := b.acknowledge()
	require.True(t, this.Start.Equal(first.Data.Period.Start))
	second := b.acknowledge()
	require.True(t, this.End.Equal(second.Data.Period.Start))
	require.EqualValues(t, 2, second.Data.Sequence)
	require.Equal(t, "0", second.Data.Meters[0].Usage.String())
	require.Len(t, b.prepare(1<<62).UpToDate, 2)
}

func TestEachMeterIsBilledInItsOwnCurrency(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.price("1", "0", "0.125")
	other := dbtest.Meter(t, b.store, b.tenant, "storage", "stored")
	dbtest.Meter(t, b.store, b.tenant, "free", "freed")
	_, err := b.store.Prices.Set(t.Context(), b.tenant, metering.Operator, billing.Price{
		MeterID: other.ID, BasePrice: metering.MustDecimal("99.5"), Currency: "JPY", EffectiveFrom: b.now,
	})
	require.NoError(t, err)
	b.use("1")
	s := b.prepare(0).Send
	m := read(t, s.Body)
	b.mark(s)
	b.settle(s.ID, db.Acknowledged)
	require.Equal(t, "USD", m.Data.Currency, "the tenant's: the meters have none in common")
	var owed []string
	for _, l := range m.Data.Meters {
		owed = append(owed, l.MeterSlug+" "+l.Amount.String()+" "+l.Currency)
	}
	require.Equal(t, []string{"api-calls 1.12 USD", "storage 100 JPY", "free 0 USD"}, owed)
	require.Empty(t, b.prepare(1<<62).Skipped)
	require.Empty(t, b.due())
}

func TestAMeterThatGotItsPriceLaterIsNotBilledAgainElsewhere(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("4")
	require.Equal(t, "USD", b.acknowledge().Data.Meters[0].Currency, "the tenant's, as it has no price yet")
	_, err := b.store.Prices.Set(t.Context(), b.tenant, metering.Operator, billing.Price{MeterID: b.meter.ID, OverageRate: metering.Whole(1), Currency: "EUR"})
	require.NoError(t, err)
	require.Equal(t, "4", b.acknowledge().Data.Meters[0].Amount.String())
	b.useProvider("https://other.example.com/")
	require.Equal(t, "0", b.acknowledge().Data.Meters[0].Amount.String())
}

func TestAmountsAreRoundedToTheCurrencysMinorUnit(t *testing.T) {
	t.Parallel()
	for currency, want := range map[string]string{"USD": "0.12", "JPY": "0", "KWD": "0.125"} {
		b := newBiller(t)
		_, err := b.store.Prices.Set(t.Context(), b.tenant, metering.Operator, billing.Price{
			MeterID: b.meter.ID, OverageRate: metering.MustDecimal("0.125"), Currency: currency, EffectiveFrom: b.now,
		})
		require.NoError(t, err)
		b.use("1")
		m := b.acknowledge()
		require.Equal(t, currency, m.Data.Currency)
		require.Equal(t, want, m.Data.Meters[0].Amount.String())
	}
}

func TestWithoutAProviderNothingIsPrepared(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := dbtest.Tenant(t, store).ID
	customer := dbtest.Customer(t, store, tenant, "acme")
	_, err := store.Ledger.PrepareSnapshot(t.Context(), tenant, customer.ID, 0, dbtest.Frame, clock.Now())
	require.Equal(t, metering.CodeNoProvider, metering.CodeOf(err))
	require.ErrorContains(t, err, "PUT /v1/billing/provider first")
	_, err = store.Providers.Active(t.Context(), tenant)
	require.Equal(t, metering.CodeNoProvider, metering.CodeOf(err))
}

func TestTheLedgerOfATenantIsItsOwn(t *testing.T) {
	t.Parallel()
	mine, theirs := newBiller(t), newBiller(t)
	mine.use("1")
	theirs.use("2")
	s := mine.prepare(0).Send

	_, err := theirs.store.Ledger.PrepareSnapshot(t.Context(), theirs.tenant, mine.customer.ID, 0, dbtest.Frame, mine.now)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	_, err = theirs.store.Ledger.MarkSent(t.Context(), theirs.tenant, s.ID, mine.now, lease)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	theirs.settle(s.ID, db.Acknowledged)
	require.Equal(t, s, mine.prepare(0).Send)
	require.Equal(t, "2", theirs.acknowledge().Data.Meters[0].Usage.String())
}

func TestAHeldMeterStaysAsTheProviderKnowsIt(t *testing.T) {
	t.Parallel()
	b := newBiller(t)
	b.use("5")
	b.acknowledge()
	other := dbtest.Meter(t, b.store, b.tenant, "storage", "stored")
	b.use("2")
	prepared, err := b.store.Ledger.PrepareSnapshot(t.Context(), b.tenant, b.customer.ID, 1<<62, dbtest.Frame, b.now, b.meter.ID)
	require.NoError(t, err)
	m := read(t, prepared.Send.Body)
	require.Len(t, m.Data.Meters, 2)
	require.Equal(t, "5", m.Data.Meters[0].Usage.String())
	require.Equal(t, "api-calls", m.Data.Meters[0].MeterSlug)
	b.mark(prepared.Send)
	b.settle(prepared.Send.ID, db.Acknowledged)
	require.NotEmpty(t, b.due(), "it is not forgotten")
	require.Equal(t, "7", b.acknowledge().Data.Meters[0].Usage.String())

	third := dbtest.Meter(t, b.store, b.tenant, "seats", "seat")
	prepared, err = b.store.Ledger.PrepareSnapshot(t.Context(), b.tenant, b.customer.ID, 1<<62, dbtest.Frame, b.now, third.ID, other.ID)
	require.NoError(t, err)
	require.Nil(t, prepared.Send, "what it was never told of is left out")
	require.Equal(t, "an operator has left it as it was for this run", prepared.Skipped[0].Reason)
}
