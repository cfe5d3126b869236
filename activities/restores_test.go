package activities_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// drill is a subscriber with a database that is restored from a backup. Stripe keeps its state, and the
// client keeps the events that it has sent, to send them again.
type drill struct {
	*subscriber
	address string // of the database
	kept    []metering.Event
}

// newDrill returns a drill with a database of its own.
func newDrill(t *testing.T) *drill {
	t.Helper()
	store, address := dbtest.Fresh(t)
	d := &drill{address: address}
	writer := store.NewWriter(dbtest.WriterOptions)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	subscriber, stop := newSubscriber(t, store, writer, conn)
	t.Cleanup(stop)
	d.subscriber = subscriber
	t.Cleanup(d.disconnect)
	return d
}

// disconnect closes all connections to the database.
func (d *drill) disconnect() {
	d.writer.Close()
	d.conn.Close(context.Background())
	d.store.Close()
}

// connect connects to the database at d.address, with new activities.
func (d *drill) connect() {
	d.Helper()
	var err error
	d.store, err = dbtest.Connect(d.Context(), d.address)
	require.NoError(d, err)
	d.writer = d.store.NewWriter(dbtest.WriterOptions)
	d.conn, err = pgx.Connect(d.Context(), d.address)
	require.NoError(d, err)
	d.do = d.of(d.store)
	d.RegisterActivity(d.do)
}

// backUp copies the database, and returns the address of the copy.
func (d *drill) backUp() string {
	d.Helper()
	d.disconnect()
	backup := dbtest.Copy(d, d.address)
	d.connect()
	return backup
}

// restore continues with the backup as an operator does: it raises the epoch, and the client sends all kept events
// again.
func (d *drill) restore(backup string) {
	d.Helper()
	d.disconnect()
	d.address = backup
	d.connect()
	_, err := d.store.Restores.Raise(d.Context(), d.fake.Now())
	require.NoError(d, err)
	_, err = d.writer.Ingest(d.Context(), d.tenant, d.kept)
	require.NoError(d, err)
}

// useEach ingests an event of each meter, and adds the events to kept.
func (d *drill) useEach(value string) {
	d.Helper()
	period := 0
	if !d.fake.Now().Before(d.first.End) {
		period = 1
	}
	var events []metering.Event
	for _, meter := range inAllWays {
		events = append(events, dbtest.Event(d, meter, "acme", metering.Instant(d.fake.Now().Add(-time.Minute)), value, uuid.NewString(), ""))
		d.used[period][meter] = d.used[period][meter].Add(metering.MustDecimal(value))
	}
	d.kept = append(d.kept, events...)
	_, err := d.writer.Ingest(d.Context(), d.tenant, events)
	require.NoError(d, err)
}

// sync runs the bulk sync after the given time.
func (d *drill) sync(wait time.Duration) {
	d.Helper()
	d.fake.Advance(wait)
	d.must(d.do.SyncBatch, d.batchInput())
}

// requireQuantities requires that Stripe has the usage of the meters in the current period.
func (d *drill) requireQuantities(meters ...string) {
	d.Helper()
	period := 0
	if d.invoiced {
		period = 1
	}
	for _, meter := range meters {
		require.Equal(d, billing.Units(d.used[period][meter], 0).String(), d.fake.Quantity("si_"+meter).String(), meter)
	}
}

// TestARestoredDatabaseBillsEverythingOnce runs the drill of docs/operating/backup-and-restore.md.
func TestARestoredDatabaseBillsEverythingOnce(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]func(d *drill){
		"NothingWasLost": func(*drill) {},
		"ReportsWereLost": func(d *drill) {
			d.useEach("7")
			d.sync(time.Hour)
			d.useEach("2")
			d.sync(30 * time.Hour)
		},
		"WhatWasPlannedIsSentAfterTheBackup": func(d *drill) {
			d.sync(time.Minute)
			d.useEach("4")
			d.sync(26 * time.Hour)
		},
		"JustBeforeTheRestore": func(d *drill) {
			d.useEach("3")
			d.sync(time.Second)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDrill(t)
			d.useEach("10")
			d.sync(time.Minute)
			d.requireQuantities(inAllWays...)
			d.useEach("5")
			d.read()
			d.planned(true) // the backup contains unsent reports
			backup := d.backUp()
			lost(d)
			d.restore(backup)

			d.sync(time.Minute)
			d.requireQuantities("record", "window", "last")
			d.useEach("1")
			d.sync(time.Hour)
			d.requireQuantities("record", "window", "last")
			d.sync(24 * time.Hour) // reads and records Stripe's counts of the meters that add up
			d.sync(time.Hour)
			d.requireQuantities(inAllWays...)
			d.useEach("6")
			d.sync(time.Hour)
			d.requireQuantities(inAllWays...)

			d.invoice(nil)
			d.fake.Advance(73 * time.Hour)
			d.closeAndReport(nil)
			require.Empty(t, d.fake.State().Accounts[0].Pending)
			d.requireInvoiced()
		})
	}
}

// requireInvoiced checks that the first invoice bills the usage of the first period. It also checks that periods are
// closed four days after their end.
func (d *drill) requireInvoiced() {
	d.Helper()
	var billed, used metering.Decimal
	for _, line := range d.fake.State().Accounts[0].Invoices[0].Lines {
		billed = billed.Add(line.Quantity)
	}
	for _, meter := range inAllWays {
		used = used.Add(d.used[0][meter])
	}
	require.Equal(d, used.String(), billed.String())
	var open int
	require.NoError(d, d.conn.QueryRow(d.Context(), `select count(*) from billing_periods where closed_at is null and ends_at < $1`, d.fake.Now().AddDate(0, 0, -4)).Scan(&open))
	require.Zero(d, open)
}

// readInvoices handles an event of Stripe for each invoice.
func (d *drill) readInvoices() {
	d.Helper()
	active, err := d.store.Providers.Active(d.Context(), d.tenant)
	require.NoError(d, err)
	for _, invoice := range d.fake.State().Accounts[0].Invoices {
		kept, _, err := d.store.ProviderEvents.Store(d.Context(), d.tenant, metering.ProviderEvent{
			Connection: active.ID, EventID: uuid.NewString(), Kind: "invoice.finalized", Invoice: true, ObjectID: invoice.ID, Customer: "cus_1", MadeAt: d.fake.Now(),
		}, d.fake.Now())
		require.NoError(d, err)
		d.must(d.do.ReadInvoice, activities.ProviderEventInput{TenantID: d.tenant, RowID: kept.Row})
	}
}

// useLate ingests an event of each meter at a time in the first period, and adds the events to
// kept.
func (d *drill) useLate(value string) {
	d.Helper()
	var events []metering.Event
	for _, meter := range inAllWays {
		events = append(events, dbtest.Event(d, meter, "acme", d.first.End.Add(-time.Hour), value, uuid.NewString(), ""))
		d.used[0][meter] = d.used[0][meter].Add(metering.MustDecimal(value))
	}
	d.kept = append(d.kept, events...)
	_, err := d.writer.Ingest(d.Context(), d.tenant, events)
	require.NoError(d, err)
}

// requireAllBilled checks that the first invoice and the pending invoice items bill the usage of the first period.
func (d *drill) requireAllBilled() {
	d.Helper()
	account := d.fake.State().Accounts[0]
	var billed, used metering.Decimal
	for _, line := range account.Invoices[0].Lines {
		billed = billed.Add(line.Amount)
	}
	for _, late := range account.Pending {
		billed = billed.Add(late.Amount)
	}
	for _, meter := range inAllWays {
		used = used.Add(d.used[0][meter].Mul(metering.Whole(1_000_000)))
	}
	require.Equal(d, used.String(), billed.String())
}

// TestRestoredDatabaseDoesNotChargeLateUsageTwice checks a period that ended, closed and was adjusted after the
// backup. The restored database closes it again, and does not charge late usage twice, even if the backup contains no
// report.
func TestRestoredDatabaseDoesNotChargeLateUsageTwice(t *testing.T) {
	t.Parallel()
	for name, reported := range map[string]bool{"ReportsAreKnown": true, "NoneIs": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := newDrill(t)
			if reported {
				d.useEach("10")
			}
			d.sync(time.Minute)
			backup := d.backUp()
			d.useEach("5")
			d.invoice(nil)
			d.fake.Advance(73 * time.Hour)
			d.closeAndReport(nil)
			d.useLate("3")
			d.closeAndReport(nil)
			require.NotEmpty(t, d.fake.State().Accounts[0].Pending)
			d.requireAllBilled()
			d.restore(backup)
			d.readInvoices()
			for range 4 {
				d.sync(25 * time.Hour)
				d.closePeriods(nil)
			}
			d.closeAndReport(nil)
			d.requireAllBilled()
			d.useLate("2")
			d.closeAndReport(nil)
			d.requireAllBilled()
		})
	}
}

// TestReportPlannedAtBackupAndRefusedAfterRestoreIsInDoubt checks a report that was planned at the backup and may have
// been sent after it. A refusal after the end of its period does not show that the report did not arrive.
func TestReportPlannedAtBackupAndRefusedAfterRestoreIsInDoubt(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	d.ingest("record", "5")
	d.read()
	planned := d.planned(true)
	require.Len(t, planned, 1)
	backup := d.backUp()
	require.True(t, d.sent(planned[0]))
	d.restore(backup)
	d.fake.Advance(d.first.End.Add(time.Hour).Sub(d.fake.Now()))
	sent, err := d.do.SendReport(t.Context(), activities.SendReportInput{TenantID: d.tenant, ReportID: planned[0]})
	require.NoError(t, err)
	require.Equal(t, billing.InDoubt, sent.State, sent.Response)
}

// TestRestoredDatabaseFindsAmountsOfInvoiceLines checks that a restored database finds lines that were created or
// changed after the backup. It finds the last amount of a pending line, and the invoiced amount of an invoiced line.
func TestRestoredDatabaseFindsAmountsOfInvoiceLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		before    string // usage before the backup
		invoiced  bool   // the invoice became final before the restore
		afterward bool   // the invoice becomes final after the restore
	}{
		{"a line that was set", "10", false, false},
		{"a line that was made", "", false, false},
		{"a line that was set, and is invoiced", "10", true, false},
		{"a line that was made, and is invoiced", "", true, false},
		{"a line that was set, and is invoiced then", "10", false, true},
		{"a line that was made, and is invoiced then", "", false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDrill(t)
			d.charge()
			if c.before != "" {
				d.useEach(c.before)
			}
			d.sync(time.Minute)
			backup := d.backUp()
			d.useEach("5")
			d.sync(time.Minute)
			if c.invoiced {
				d.invoice(nil)
				d.fake.Advance(73 * time.Hour)
				d.closeAndReport(nil)
				d.useLate("3")
				d.closeAndReport(nil)
			}
			d.requireAllCharged()
			d.restore(backup)
			if c.afterward {
				d.fake.Advance(d.first.End.Add(2 * time.Hour).Sub(d.fake.Now()))
			}
			d.readInvoices()
			for range 4 {
				d.sync(25 * time.Hour)
				d.closePeriods(nil)
			}
			d.closeAndReport(nil)
			d.requireAllCharged()
			d.useEach("1")
			if c.invoiced || c.afterward {
				d.useLate("2")
			}
			d.closeAndReport(nil)
			d.requireAllCharged()
		})
	}
}

// TestRestoredDatabaseFindsLinesSetByReportsPlannedAtBackup checks reports that were planned at the backup and set
// invoice lines after it, except the first report. Each outcome is unknown until the lines are read, and no report is
// sent until then. A line names the report that set it.
func TestRestoredDatabaseFindsLinesSetByReportsPlannedAtBackup(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	d.charge()
	d.useEach("5")
	d.read()
	planned := d.planned(true)
	require.Len(t, planned, len(inAllWays))
	backup := d.backUp()
	for _, report := range planned[1:] {
		require.True(t, d.sent(report))
	}
	states := func() (all []billing.State) {
		for _, report := range planned {
			var state billing.State
			require.NoError(t, d.conn.QueryRow(t.Context(), `select state from billing_reports where tenant_id = $1 and id = $2`, d.tenant, report).Scan(&state))
			all = append(all, state)
		}
		return all
	}
	d.restore(backup)
	_, err := d.do.SendReport(t.Context(), activities.SendReportInput{TenantID: d.tenant, ReportID: planned[0]})
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err), "a run from before the restore sets no line")
	require.Equal(t, slices.Repeat([]billing.State{billing.InDoubt}, len(planned)), states())
	d.read()
	require.Equal(t, append([]billing.State{billing.Rejected}, slices.Repeat([]billing.State{billing.Counted}, len(planned)-1)...), states())
	d.sync(time.Hour)
	require.Len(t, d.pending(), len(inAllWays))
	d.requireAllCharged()
}

// TestRestoredDatabaseKeepsLineAmountThatOperatorLowered checks that a line keeps its amount if an operator lowered it
// at Stripe after the backup. The restored database finds the amount that Odometer had set, and does not charge the
// difference.
func TestRestoredDatabaseKeepsLineAmountThatOperatorLowered(t *testing.T) {
	t.Parallel()
	d := newDrill(t)
	d.charge()
	backup := d.backUp()
	d.useEach("5")
	d.sync(time.Minute)
	d.requireAllCharged()
	edited := d.pending()[0]
	d.call("/v1/invoiceitems/"+edited.InvoiceItem, "amount", "1000000")
	d.used[0][inAllWays[0]] = d.used[0][inAllWays[0]].Sub(metering.Whole(4))
	d.requireAllCharged()
	d.restore(backup)
	d.sync(25 * time.Hour)
	d.sync(25 * time.Hour)
	d.requireAllCharged()
	d.fake.Advance(d.first.End.Add(2 * time.Hour).Sub(d.fake.Now()))
	d.readInvoices()
	for range 4 {
		d.sync(25 * time.Hour)
		d.closePeriods(nil)
	}
	d.closeAndReport(nil)
	d.requireAllCharged()
}

// requireAllCharged checks that all invoices and the pending invoice items bill all usage.
func (d *drill) requireAllCharged() {
	d.Helper()
	account := d.fake.State().Accounts[0]
	var billed, used metering.Decimal
	for _, invoice := range account.Invoices {
		for _, line := range invoice.Lines {
			billed = billed.Add(line.Amount)
		}
	}
	for _, line := range account.Pending {
		billed = billed.Add(line.Amount)
	}
	for _, sums := range d.used {
		for _, meter := range inAllWays {
			used = used.Add(sums[meter].Mul(metering.Whole(1_000_000)))
		}
	}
	require.Equal(d, used.String(), billed.String())
}
