package db_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

const lease = 25 * time.Second

// biller is a tenant with a customer, a meter and a provider, and a clock.
type biller struct {
	testing.TB
	store    *db.DB
	address  string // of the store's database
	writer   *usage.Writer
	tenant   metering.TenantID
	customer metering.Customer
	meter    metering.Meter
	now      time.Time

	connection metering.ConnectionID // the active one
}

func newBiller(t testing.TB) *biller {
	t.Helper()
	return newBillerAt(t, dbtest.Open(t), dbtest.URL(t))
}

func newBillerAt(t testing.TB, store *db.DB, address string) *biller {
	t.Helper()
	writer := store.NewWriter(dbtest.WriterOptions)
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
	return dbtest.ConnTo(b, b.address)
}

// useProvider makes the webhook at url the tenant's provider. A new url begins a new connection.
func (b *biller) useProvider(url string) {
	b.Helper()
	b.connectTo(metering.Provider{Kind: metering.Webhook, Statements: true, Address: url})
}

func (b *biller) connectTo(p metering.Provider) {
	b.Helper()
	p.SealedSecret, p.LastFour, p.ValidatedAt = []byte("sealed"), "abcd", b.now
	b.connection = dbtest.Provider(b, b.store, b.tenant, p).ID
}

func (b *biller) use(value string) { b.useAt(value, b.now) }

func (b *biller) useAt(value string, at time.Time) {
	b.Helper()
	event := dbtest.Event(b, "api_call", "acme", at, value, "", "")
	event.ReceivedAt = b.now
	_, err := b.writer.Ingest(b.Context(), b.tenant, []metering.Event{event})
	require.NoError(b, err)
}

func (b *biller) price(base, included, overage string) {
	b.Helper()
	dbtest.Price(b, b.store, b.tenant, billing.Price{
		MeterID: b.meter.ID, Terms: billing.Terms{BasePrice: metering.MustDecimal(base), IncludedUnits: metering.MustDecimal(included), OverageRate: metering.MustDecimal(overage), Currency: "USD"}, EffectiveFrom: b.now,
	})
}

// anew is a Pass.After above the number of every report. A plan with anew treats no report as part of the caller's
// pass.
const anew = 1 << 62

func (b *biller) plan(after int64, excluded ...metering.MeterID) ledger.Planned {
	b.Helper()
	planned, err := b.store.Ledger.Plan(b.Context(), b.tenant, b.customer.ID, ledger.Pass{After: after, Excluded: excluded}, dbtest.Frame, b.now)
	require.NoError(b, err)
	return planned
}

// next plans, and returns the first report to send.
func (b *biller) next(after int64) ledger.Report {
	b.Helper()
	planned := b.plan(after)
	require.NotEmpty(b, planned.Send)
	return planned.Send[0]
}

func (b *biller) lease(report uuid.UUID) ledger.Leased {
	b.Helper()
	leased, err := b.store.Ledger.Lease(b.Context(), b.tenant, report, b.now, lease)
	require.NoError(b, err)
	return leased
}

func (b *biller) complete(report uuid.UUID, state billing.State) {
	b.Helper()
	require.NoError(b, b.store.Ledger.Complete(b.Context(), b.tenant, report, state, "tested", b.now))
}

// accept plans reports, sends the first one, and returns its message. The provider accepts the report.
func (b *biller) accept() message {
	b.Helper()
	return b.acceptOf(b.plan(anew))
}

// acceptOf sends the first of the planned reports, and returns its message. The provider accepts the
// report.
func (b *biller) acceptOf(planned ledger.Planned) message {
	b.Helper()
	require.NotEmpty(b, planned.Send)
	leased := b.lease(planned.Send[0].ID)
	b.complete(leased.ReportID, billing.Accepted)
	return read(b, leased.Body)
}

// readMessage returns the message in the body of a statement.
func (b *biller) readMessage(report uuid.UUID) message {
	b.Helper()
	return read(b, b.body(report))
}

// body returns the stored body of a report.
func (b *biller) body(report uuid.UUID) (body []byte) {
	b.Helper()
	b.scan(`select body from billing_reports where tenant_id = $1 and id = $2`, []any{b.tenant, report}, &body)
	return body
}

// state returns the state and the stored response of a report.
func (b *biller) state(report uuid.UUID) (state billing.State, response string) {
	b.Helper()
	b.scan(`select state, response from billing_reports where tenant_id = $1 and id = $2`, []any{b.tenant, report}, &state, &response)
	return state, response
}

// audited returns the resources of the audit log entries with an action.
func (b *biller) audited(action string) (resources []string) {
	b.Helper()
	entries, err := dbtest.Items(b.store.AuditLog.List(b.Context(), b.tenant, access.AuditFilter{}, 0, 100))
	require.NoError(b, err)
	for _, e := range entries {
		if e.Action == action {
			resources = append(resources, e.Resource)
		}
	}
	return resources
}

// scan reads a row that no method returns.
func (b *biller) scan(sql string, args []any, row ...any) {
	b.Helper()
	conn, err := pgx.Connect(b.Context(), b.address)
	require.NoError(b, err)
	defer conn.Close(b.Context())
	require.NoError(b, conn.QueryRow(b.Context(), sql, args...).Scan(row...))
}

type message struct {
	Type string `json:"type"`
	Data struct {
		TenantID           string `json:"tenant_id"`
		CustomerExternalID string `json:"customer_external_id"`
		Period             struct{ Start, End time.Time }
		LedgerEpoch        int64 `json:"ledger_epoch"`
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
