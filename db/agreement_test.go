package db_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// bill is a biller with two meters. Its tenant bills the customer at several connections, one after another.
type bill struct {
	*biller
	meters   []metering.Meter
	began    time.Time                    // creation time of the customer
	used     map[counter]metering.Decimal // ingested usage by meter and month
	at       string                       // address or account of the active connection
	compared map[string]int
}

type counter struct {
	meter metering.MeterID
	month time.Time
}

func newBill(t testing.TB) *bill {
	b := &bill{biller: newBiller(t), used: make(map[counter]metering.Decimal), compared: make(map[string]int)}
	b.began = billing.CalendarPeriod(clock.Now().AddDate(-4, 0, 0), time.UTC).Start.AddDate(0, 0, 10)
	b.created(b.began)
	b.meters = []metering.Meter{b.meter, dbtest.Meter(t, b.store, b.tenant, "storage", "stored")}
	b.move("https://1.example.com/")
	return b
}

func (b *bill) ingest(t *rapid.T) {
	meter := rapid.SampledFrom(b.meters).Draw(t, "meter")
	value := rapid.SampledFrom([]string{"1", "2.5", "-1", "100.005", "0.000000000001", "7.125"}).Draw(t, "value")
	age := time.Duration(rapid.Int64Range(0, int64(b.now.Sub(b.began))).Draw(t, "age"))
	if rapid.Bool().Draw(t, "recent") {
		age %= 48 * time.Hour
	}
	at := b.now.Add(-age)
	event := dbtest.Event(b, meter.EventType, "acme", at, value, "", "")
	_, err := b.writer.Ingest(b.Context(), b.tenant, []metering.Event{event})
	require.NoError(b, err)
	b.count(meter.ID, at, value)
}

func (b *bill) count(meter metering.MeterID, at time.Time, value string) {
	of := counter{meter, billing.CalendarPeriod(at, time.UTC).Start}
	b.used[of] = b.used[of].Add(metering.MustDecimal(value))
}

func (b *bill) setPrice(t *rapid.T) {
	amount := func(label string) metering.Decimal {
		return metering.MustDecimal(rapid.SampledFrom([]string{"0", "0.005", "1.25", "3", "0.000000000001"}).Draw(t, label))
	}
	dbtest.Price(b, b.store, b.tenant, billing.Price{
		MeterID: rapid.SampledFrom(b.meters).Draw(t, "meter").ID, EffectiveFrom: billing.CalendarPeriod(b.now, time.UTC).End,
		Terms: billing.Terms{
			BasePrice: amount("base"), IncludedUnits: amount("included"), OverageRate: amount("rate"),
			Currency: rapid.SampledFrom([]string{"USD", "USD", "JPY"}).Draw(t, "currency"),
		},
	})
}

// move makes another billing connection active. Reports to the previous connection may be outstanding.
func (b *bill) move(connection string) {
	if b.at = connection; connection != "acct_1" {
		b.useProvider(connection)
		return
	}
	b.useStripe(connection)
	b.read()
}

// read stores the customer's state at Stripe as a sync pass reads it. If Stripe is not the active connection, read does
// nothing.
func (b *bill) read() {
	if b.at != "acct_1" {
		return
	}
	b.exec(`update customers set billing_provider_id = 'cus_1' where tenant_id = $1 and id = $2`, b.tenant, b.customer.ID)
	side := billing.Side{Customer: "cus_1", Subscription: "sub_1", Period: billing.CalendarPeriod(b.now, time.UTC)}
	for _, m := range b.meters {
		d := asDelta
		d.MeterID, d.Target = m.ID, "mtr_"+m.Slug
		side.Destinations = append(side.Destinations, d)
	}
	require.NoError(b, b.store.Links.Save(b.Context(), b.tenant, b.customer.ID, b.connection, side, b.now))
}

func (b *bill) pass(d time.Duration) {
	b.now = b.now.Add(d)
	b.read()
}

// turn moves the clock to one hour after the start of the next month.
func (b *bill) turn() { b.pass(billing.CalendarPeriod(b.now, time.UTC).End.Add(time.Hour).Sub(b.now)) }

func (b *bill) close() {
	b.sync()
	b.closePeriods()
}

// sync plans and sends reports until none is left. The provider accepts each of them.
func (b *bill) sync() {
	for range 100 {
		planned := b.plan(anew)
		if len(planned.Send) == 0 {
			return
		}
		for _, r := range planned.Send {
			b.lease(r.ID)
			b.complete(r.ID, billing.Accepted)
		}
	}
	b.Fatal("there is always something left to send")
}

// compare plans reports, and compares them with the statements and the preview of the same instant.
func (b *bill) compare() {
	numbers, err := b.store.Ledger.LastNumbers(b.Context(), b.tenant, []metering.CustomerID{b.customer.ID})
	require.NoError(b, err)
	b.plan(anew)
	list, err := dbtest.Items(b.store.Ledger.Statements(b.Context(), b.tenant, b.customer.ID, billing.PeriodPlace{Start: b.now.Add(time.Hour)}, 3, b.now))
	require.NoError(b, err)
	preview, err := b.store.Ledger.Preview(b.Context(), b.tenant, b.customer.ID, b.now)
	require.NoError(b, err)
	for _, s := range list {
		b.compareStatement(s, numbers[b.customer.ID])
		if s.Contains(b.now) {
			b.comparePreview(s, preview)
		}
		switch {
		case len(s.Adjustments) == 0:
		case s.ClosedAt == nil:
			b.compareLate(s, preview)
		default:
			b.compareTaken(s)
		}
	}
}

func (b *bill) compareStatement(listed billing.Statement, last int64) {
	stated, err := b.store.Ledger.Statement(b.Context(), b.tenant, listed.ID, ledger.ReportPage{Before: math.MaxInt64, Limit: 1000}, b.now)
	require.NoError(b, err)
	require.Equal(b, listed, stated.Statement)
	explained, err := b.store.Ledger.StatementOf(b.Context(), b.tenant, b.customer.ID, 0, func(p billing.Period) bool { return p.Contains(listed.Start) }, b.now)
	require.NoError(b, err)
	require.Equal(b, listed, explained)
	for _, l := range listed.Lines {
		same(b, l.Working[len(l.Working)-1].Amount, l.Amount)
		same(b, b.used[counter{l.MeterID, listed.Start}], l.Usage.Add(l.LateUsage))
	}
	for _, r := range stated.Reports.Items {
		if r.Number > last { // usage may have changed since earlier reports were planned
			b.compareReport(stated, r)
		}
	}
}

// compareReport requires that each line of a report equals the amounts of the same meter, or of its adjustment, in the
// statement.
func (b *bill) compareReport(s ledger.PeriodStatement, r ledger.PeriodReport) {
	for _, sent := range r.Lines {
		b.compared[string(r.Kind)+" "+string(sent.Component())]++
		if sent.Component() == billing.AdjustmentComponent {
			i := slices.IndexFunc(s.Adjustments, func(a billing.Adjustment) bool { return a.MeterID == sent.MeterID && a.Closed == sent.Of })
			if i < 0 { // the adjustment was reported earlier, and is zero now
				same(b, metering.Decimal{}, sent.Amount)
				continue
			}
			same(b, s.Adjustments[i].Amount, sent.Amount)
			same(b, s.Adjustments[i].Quantity, sent.Quantity)
			continue
		}
		line, known := s.Line(sent.MeterID)
		require.True(b, known)
		if s.ClosedAt != nil {
			b.compareClosed(s, line, sent.Line, r.Connection)
			continue
		}
		own := line.Working
		if i := slices.IndexFunc(own, func(s billing.Step) bool { return s.Name == billing.StepAdjustment }); i >= 0 {
			own = own[:i]
		}
		same(b, own[len(own)-1].Amount, sent.Amount)
		same(b, lastOf(own, billing.StepQuantity, billing.StepUnits, billing.StepUsage).Amount, sent.Quantity)
		same(b, line.Charge, sent.Charge)
	}
	if r.Kind == billing.StatementReport {
		b.compareBody(r)
	}
}

// compareClosed requires that the quantity sent for a closed period is its usage minus the quantities
// that other connections accepted. The statement shows the whole usage, including usage that other
// connections bill.
func (b *bill) compareClosed(s ledger.PeriodStatement, line billing.StatementLine, sent billing.Line, at metering.ConnectionID) {
	b.compared["closed usage"]++
	same(b, line.Usage, sent.Usage)
	same(b, line.Charge, sent.Charge)
	var elsewhere metering.Decimal
	seen := map[metering.ConnectionID]bool{at: true}
	for _, r := range s.Reports.Items { // newest first
		i := slices.IndexFunc(r.Lines, func(l ledger.PeriodReportLine) bool {
			return l.Component() == billing.UsageComponent && l.MeterID == sent.MeterID
		})
		if i < 0 || seen[r.Connection] || !r.State.Taken() {
			continue
		}
		seen[r.Connection] = true
		elsewhere = elsewhere.Add(r.Lines[i].Quantity)
	}
	left := line.Usage.Sub(elsewhere)
	if rounded := lastOf(line.Working, billing.StepUnits); rounded.Digits != nil {
		left = billing.UnitsBetween(elsewhere, line.Usage, *rounded.Digits)
	}
	same(b, left, sent.Quantity)
}

// compareBody requires that the body of a statement contains the lines of the report.
func (b *bill) compareBody(r ledger.PeriodReport) {
	data := b.readMessage(r.ID).Data
	require.Len(b, r.Lines, len(data.Meters)+len(data.Adjustments))
	for i, m := range data.Meters {
		require.Equal(b, [3]string{m.MeterSlug, m.Usage.String(), m.Amount.String()},
			[3]string{r.Lines[i].MeterSlug, r.Lines[i].Quantity.String(), r.Lines[i].Amount.String()})
	}
}

func (b *bill) comparePreview(s billing.Statement, preview []billing.PreviewLine) {
	for _, p := range preview {
		if p.LateFor != nil {
			continue
		}
		line, known := s.Line(p.MeterID)
		require.True(b, known)
		b.compared["preview"]++
		same(b, line.Usage, p.Usage)
		same(b, lastOf(line.Working, billing.StepExact).Amount, p.Amount)
		require.Equal(b, line.Working[:len(p.Working)], p.Working)
	}
}

func (b *bill) compareLate(s billing.Statement, preview []billing.PreviewLine) {
	late := slices.DeleteFunc(slices.Clone(preview), func(p billing.PreviewLine) bool { return p.LateFor == nil })
	require.Len(b, late, len(s.Adjustments))
	for i, a := range s.Adjustments {
		b.compared["preview of late usage"]++
		require.Equal(b, [2]any{a.MeterID, a.Closed}, [2]any{late[i].MeterID, *late[i].LateFor})
		same(b, a.Amount, late[i].Amount)
		same(b, a.Quantity, late[i].Usage)
		require.Equal(b, a.Working, late[i].Working)
	}
}

// compareTaken requires that the adjustments in a closed period's statement add up to the amounts of its accepted
// reports. These amounts are the adjustments in the last statement of each connection, and all charges.
func (b *bill) compareTaken(s billing.Statement) {
	stated, err := b.store.Ledger.Statement(b.Context(), b.tenant, s.ID, ledger.ReportPage{Before: math.MaxInt64, Limit: 1000}, b.now)
	require.NoError(b, err)
	var want, got metering.Decimal
	seen := make(map[metering.ConnectionID]bool)
	for _, r := range stated.Reports.Items { // newest first
		if !r.State.Taken() || r.Kind == billing.StatementReport && seen[r.Connection] {
			continue
		}
		seen[r.Connection] = true
		if r.Kind == billing.ChargeReport {
			want = want.Add(*r.Quantity)
			continue
		}
		for _, l := range r.Lines {
			if l.Component() == billing.AdjustmentComponent {
				want = want.Add(l.Amount)
			}
		}
	}
	for _, a := range s.Adjustments {
		b.compared["closed adjustment"]++
		got = got.Add(a.Amount)
	}
	same(b, want, got)
}

func same(t testing.TB, want, got metering.Decimal) {
	t.Helper()
	require.Equal(t, want.String(), got.String())
}

// lastOf returns the step of the first name that the breakdown contains, or an empty step.
func lastOf(steps []billing.Step, names ...string) billing.Step {
	for _, name := range names {
		if i := slices.IndexFunc(steps, func(s billing.Step) bool { return s.Name == name }); i >= 0 {
			return steps[i]
		}
	}
	return billing.Step{}
}

// TestPropertyPreviewStatementBreakdownAndReportsAgreeToTheDigit compares the preview, the statement, the
// breakdown and the reports of the same instant after random events, price changes, provider changes and
// closings.
func TestPropertyPreviewStatementBreakdownAndReportsAgreeToTheDigit(t *testing.T) {
	t.Parallel()
	connections := []string{"https://1.example.com/", "https://2.example.com/", "acct_1"}
	histories.Check(t, func(rt *rapid.T) {
		b := newBill(t)
		acts := []func(){
			func() { b.ingest(rt) }, func() { b.ingest(rt) }, func() { b.setPrice(rt) }, b.compare, b.sync, b.turn, b.close,
			func() { b.move(rapid.SampledFrom(connections).Draw(rt, "connection")) },
			func() { b.pass(80 * time.Hour) },
		}
		for _, act := range rapid.SliceOfN(rapid.IntRange(0, len(acts)-1), 4, 14).Draw(rt, "acts") {
			acts[act]()
		}
		b.compare()
	})
}

// TestPreviewStatementBreakdownAndReportsAgreeInEachComparison plays a fixed history that includes each kind of
// comparison in the list below. Random histories may miss some of them.
func TestPreviewStatementBreakdownAndReportsAgreeInEachComparison(t *testing.T) {
	t.Parallel()
	b := newBill(t)
	b.price("10", "100", "0.005")
	b.use("141.75")
	b.count(b.meter.ID, b.now, "141.75")
	b.compare()
	b.turn()
	b.pass(80 * time.Hour)
	b.close()
	b.useAt("7.125", b.began.Add(time.Hour))
	b.count(b.meter.ID, b.began, "7.125")
	b.compare()
	b.move("acct_1")
	b.use("2.5")
	b.count(b.meter.ID, b.now, "2.5")
	b.compare()
	b.sync()
	b.move("https://2.example.com/")
	b.use("1")
	b.count(b.meter.ID, b.now, "1")
	b.compare()
	b.turn()
	b.pass(80 * time.Hour)
	b.close()
	b.compare()
	b.use("7.125")
	b.count(b.meter.ID, b.now, "7.125")
	b.sync()
	b.move("acct_1") // the account bills whole units, so the closed units differ from the usage sent to the receiver
	b.turn()
	b.pass(80 * time.Hour)
	b.close()
	b.move("https://3.example.com/")
	b.compare()
	for _, what := range []string{"statement usage", "closed usage", "statement adjustment", "quantity usage", "charge adjustment", "preview", "preview of late usage", "closed adjustment"} {
		require.Positive(t, b.compared[what], "%q is never compared", what)
	}
}

// TestLinesOfClosedPeriodHaveFixedOrder checks that the order of the lines does not depend on the
// order in which PostgreSQL finds their rows.
func TestLinesOfClosedPeriodHaveFixedOrder(t *testing.T) {
	t.Parallel()
	w := newTown(t, 1)
	w.use(w.month, 1)
	w.now = over(w.month)
	w.close()
	for _, m := range w.meters[:2] {
		w.exec(`update billing_period_totals set usage = usage where tenant_id = $1 and meter_id = $2`, w.tenant, m.ID)
	}
	scanning := dbtest.As(t, dbtest.URL(t), dbtest.Roles.API)
	for _, access := range []string{"enable_indexscan", "enable_bitmapscan", "enable_indexonlyscan"} {
		scanning = dbtest.With(t, scanning, access, "off")
	}
	store, err := dbtest.Connect(t.Context(), scanning)
	require.NoError(t, err)
	t.Cleanup(store.Close)
	statement, err := store.Ledger.StatementOf(t.Context(), w.tenant, w.customer.ID, 0, func(p billing.Period) bool { return p.Contains(w.month.Start.AddDate(0, 0, 5)) }, w.now)
	require.NoError(t, err)
	var order []metering.MeterID
	for _, l := range statement.Closed {
		order = append(order, l.MeterID)
	}
	require.Equal(t, []metering.MeterID{w.meters[0].ID, w.meters[1].ID, w.meters[2].ID}, order)
}
