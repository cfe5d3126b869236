package db_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

const lease = 25 * time.Second

// biller is a tenant with a customer, a meter and a provider, and a clock.
type biller struct {
	testing.TB
	store    *db.DB
	writer   *db.Writer
	tenant   metering.TenantID
	customer metering.Customer
	meter    metering.Meter
	now      time.Time
}

func newBiller(t testing.TB) *biller {
	t.Helper()
	store := dbtest.Open(t)
	writer := db.NewWriter(store, db.WriterOptions{})
	t.Cleanup(writer.Close)
	tenant := dbtest.Tenant(t, store)
	b := &biller{TB: t, store: store, writer: writer, tenant: tenant.ID, now: time.Now()}
	b.customer = dbtest.Customer(t, store, tenant.ID, "acme")
	b.meter = dbtest.Meter(t, store, tenant.ID, "api-calls", "api_call")
	b.useProvider("https://billing.example.com/usage")
	return b
}

func (b *biller) useProvider(url string) {
	b.Helper()
	_, err := b.store.Providers.Save(b.Context(), b.tenant, metering.Operator, metering.Provider{
		Kind: metering.Webhook, Account: url, SealedSecret: []byte("sealed"), LastFour: "abcd", ValidatedAt: b.now,
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
	_, err := b.store.Prices.Set(b.Context(), b.tenant, metering.Operator, metering.Price{
		MeterID: b.meter.ID, BasePrice: metering.MustDecimal(base), IncludedUnits: metering.MustDecimal(included),
		OverageRate: metering.MustDecimal(overage), Currency: "USD", EffectiveFrom: b.now,
	})
	require.NoError(b, err)
}

func (b *biller) prepare(after int64) db.Prepared {
	b.Helper()
	prepared, err := b.store.Ledger.PrepareSnapshot(b.Context(), b.tenant, b.customer.ID, after, b.now)
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
	month := metering.CalendarPeriod(b.now, time.UTC)
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
