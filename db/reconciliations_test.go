package db_test

import (
	"errors"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// books is a tenant with a provider that bills closed periods on invoices.
type books struct {
	*dbtest.Books
	store    *db.DB
	conn     *pgx.Conn
	tenant   metering.TenantID
	customer metering.Customer
	meter    metering.Meter
	month    metering.Range
}

func newBooks(t *testing.T) *books { return newBooksAt(t, dbtest.Open(t), dbtest.Conn(t)) }

func newBooksAt(t *testing.T, store *db.DB, conn *pgx.Conn) *books {
	t.Helper()
	b := &books{store: store, conn: conn, tenant: dbtest.Tenant(t, store).ID}
	b.Books = dbtest.NewBooks(t, store, conn, b.tenant)
	b.customer = dbtest.Customer(t, store, b.tenant, "acme")
	b.meter = dbtest.Meter(t, store, b.tenant, "calls", "call")
	b.month = b.before(5)
	return b
}

func (b *books) before(months int) metering.Range {
	return billing.CalendarPeriod(clock.Month(clock.Now(), -months), time.UTC)
}

// closed creates a closed period with a total of 10 units, of which the provider has counted 9.
func (b *books) closed(month metering.Range) metering.PeriodID {
	b.Helper()
	id := b.Period(b.customer.ID, month, true)
	b.Total(id, b.meter, "10")
	b.Report(id, b.meter.ID, "si_1", "9", billing.Counted)
	return id
}

// storeReconciliation stores a reconciliation in the given state for a period that closed has created. The
// invoices bill 7 of the period's 10 units.
func (b *books) storeReconciliation(period metering.PeriodID, state billing.ReconciliationState) {
	b.Helper()
	billed := metering.Whole(10)
	if state == billing.ReconciliationCarried {
		billed = metering.Whole(6)
	}
	b.Reconcile(period, billing.Reconciliation{
		MeterID: b.meter.ID, Units: metering.Whole(10), Reported: metering.Whole(9), Invoiced: metering.Whole(7), Unexplained: metering.Whole(1), Billed: billed,
		State: state, Reason: billing.ReasonNotBilled,
	})
}

func (b *books) list(f ledger.ReconciliationFilter) []ledger.Reconciled {
	b.Helper()
	list, err := dbtest.Items(b.store.Reconciliations.List(b.Context(), b.tenant, f, 100))
	require.NoError(b, err)
	return list
}

func (b *books) decide(period metering.PeriodID, d billing.Decision, note string) (ledger.Reconciled, error) {
	return b.store.Reconciliations.Decide(b.Context(), b.tenant, ledger.ReconciliationKey{Period: period, Meter: b.meter.ID},
		ledger.Verdict{Decision: d, Actor: "key_1", Note: note}, clock.Now())
}

// rows returns the number of stored reconciliations.
func (b *books) rows() (n int) {
	b.Helper()
	require.NoError(b, b.conn.QueryRow(b.Context(), `select count(*) from billing_reconciliations where tenant_id = $1`, b.tenant).Scan(&n))
	return n
}

func (b *books) audited() (all []string) {
	b.Helper()
	entries, err := dbtest.Items(b.store.AuditLog.List(b.Context(), b.tenant, access.AuditFilter{}, 0, 100))
	require.NoError(b, err)
	for _, e := range entries {
		if e.Actor == "key_1" {
			all = append(all, e.Action+" "+e.Resource+" "+e.Reason)
		}
	}
	return all
}

func TestReconciliationShowsReportedAndInvoicedQuantities(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	period := b.closed(b.month)
	b.Report(period, b.meter.ID, "si_2", "1.5", billing.Counted)
	b.Report(period, b.meter.ID, "si_2", "2.5", billing.Accepted)
	b.Report(period, b.meter.ID, "si_2", "4", billing.Rejected)
	other := dbtest.Meter(t, b.store, b.tenant, "mails", "mail")
	b.Total(period, other, "3")
	threshold := dbtest.Invoice{ID: "in_1", Period: b.month, Status: "paid"}
	b.Save(b.customer.ID, threshold, map[metering.MeterID]string{b.meter.ID: "100"})
	threshold.Version = 2
	b.Save(b.customer.ID, threshold, map[metering.MeterID]string{b.meter.ID: "4.5", other.ID: "3"})
	b.Save(b.customer.ID, dbtest.Invoice{ID: "in_2", Period: b.month, Status: "void"}, map[metering.MeterID]string{b.meter.ID: "50"})
	b.Save(b.customer.ID, dbtest.Invoice{ID: "in_3", Period: b.month, Status: "draft", Renewal: true}, map[metering.MeterID]string{b.meter.ID: "2"})
	b.Save(b.customer.ID, dbtest.Invoice{ID: "in_4", Period: b.before(4), Status: "paid"}, map[metering.MeterID]string{b.meter.ID: "60"})
	stranger := dbtest.Customer(t, b.store, b.tenant, "stranger")
	b.Save(stranger.ID, dbtest.Invoice{ID: "in_5", Period: b.month, Status: "paid"}, map[metering.MeterID]string{b.meter.ID: "70"})

	list := b.list(ledger.ReconciliationFilter{})
	require.Len(t, list, 1, "no mails were reported")
	r := list[0]
	require.Equal(t, billing.ReconciliationOpen, r.State)
	require.Equal(t, []string{"acme", "calls", "USD", "USD"}, []string{r.ExternalID, r.MeterSlug, r.Currency, r.InvoicedCurrency})
	require.Equal(t, []any{b.customer.ID, period, b.month, b.meter.ID}, []any{r.CustomerID, r.PeriodID, r.Period, r.MeterID})
	require.Equal(t, []string{"10", "20", "11.5", "10.5", "4.5", "13.5"}, []string{
		r.Usage.String(), r.Charge.String(), r.Accepted.String(), r.Counted.String(), r.Invoiced.String(), r.InvoicedAmount.String(),
	})
	require.Nil(t, r.DecidedAt)
	require.Len(t, r.Invoices, 3)
	for i, want := range []string{"in_1 paid 4.5", "in_2 void 50", "in_3 draft 2"} {
		invoice := r.Invoices[i]
		require.Equal(t, want, invoice.ID+" "+invoice.Status+" "+invoice.Quantity.String())
		require.Equal(t, b.Connection, invoice.Connection)
		require.Equal(t, i == 1, invoice.Void)
		require.Equal(t, i == 2, invoice.Renewal)
		require.Equal(t, i == 2, invoice.FinalizedAt == nil)
	}

	b.Save(b.customer.ID, dbtest.Invoice{ID: "in_6", Period: b.month, Status: "open", Currency: "EUR"}, map[metering.MeterID]string{b.meter.ID: "0.5"})
	r = b.list(ledger.ReconciliationFilter{})[0]
	require.Equal(t, "5", r.Invoiced.String())
	require.Nil(t, r.InvoicedAmount, "the invoices have two currencies")
	require.Empty(t, r.InvoicedCurrency)

	b.storeReconciliation(period, billing.ReconciliationCarried)
	r = b.list(ledger.ReconciliationFilter{})[0]
	require.Equal(t, []string{"10", "9", "7", "6"}, []string{r.Units.String(), r.Reported.String(), r.Invoiced.String(), r.Billed.String()}, "the quantities of the decision")
	require.Equal(t, billing.ReasonNotBilled, r.Reason)
	require.NotNil(t, r.DecidedAt)
}

func TestPeriodClosedInTestModeUsesOnlyTestModeInvoices(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	b.closed(b.month)
	b.Save(b.customer.ID, dbtest.Invoice{ID: "in_1", Period: b.month, Status: "paid"}, map[metering.MeterID]string{b.meter.ID: "9"})
	_, err := b.conn.Exec(t.Context(), `update billing_period_totals set test = true where tenant_id = $1`, b.tenant)
	require.NoError(t, err)
	r := b.list(ledger.ReconciliationFilter{})[0]
	require.Equal(t, []string{"0", "0", "0"}, []string{r.Accepted.String(), r.Counted.String(), r.Invoiced.String()})
	require.Empty(t, r.Invoices)
	_, err = b.conn.Exec(t.Context(), `update billing_connections set livemode = false where tenant_id = $1`, b.tenant)
	require.NoError(t, err)
	r = b.list(ledger.ReconciliationFilter{})[0]
	require.Equal(t, []string{"9", "9", "9"}, []string{r.Accepted.String(), r.Counted.String(), r.Invoiced.String()})
	require.Len(t, r.Invoices, 1)
}

// everyState creates periods for each of two customers: an open one, a closed one without reports, and a closed one in
// each state. The newest of the periods with a state has the last state of Values. everyState returns the keys of the
// periods with a state, the last created period first.
func (b *books) everyState() (all []ledger.ReconciliationKey) {
	b.Helper()
	acme := b.customer
	for _, customer := range []metering.Customer{acme, dbtest.Customer(b, b.store, b.tenant, "other")} {
		b.customer = customer
		for i, state := range billing.ReconciliationState("").Values() {
			period := b.closed(b.before(20 - i))
			if state != billing.ReconciliationOpen {
				b.storeReconciliation(period, billing.ReconciliationDisputed) // the last reconciliation applies
				b.storeReconciliation(period, state)
			}
			all = append([]ledger.ReconciliationKey{{Period: period, Meter: b.meter.ID}}, all...)
		}
		unreported := b.Period(customer.ID, b.before(2), true)
		b.Total(unreported, b.meter, "10")
		running := b.Period(customer.ID, b.before(0), false)
		b.Report(running, b.meter.ID, "si_1", "9", billing.Counted)
	}
	b.customer = acme
	return all
}

func keysOf(list []ledger.Reconciled) (keys []ledger.ReconciliationKey) {
	for _, r := range list {
		keys = append(keys, r.Key())
	}
	return keys
}

func TestReconciliationsAreFilteredAndPaged(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	all := b.everyState()
	states := billing.ReconciliationState("").Values()
	require.Equal(t, all, keysOf(b.list(ledger.ReconciliationFilter{})), "the newest first")
	require.Equal(t, all[len(states):], keysOf(b.list(ledger.ReconciliationFilter{Customer: b.customer.ID})))
	for i, state := range states {
		found := b.list(ledger.ReconciliationFilter{State: state})
		others, acmes := len(states)-1-i, 2*len(states)-1-i
		require.Equal(t, []ledger.ReconciliationKey{all[others], all[acmes]}, keysOf(found), state)
		require.Equal(t, state, found[0].State)
		require.Equal(t, all[acmes:acmes+1], keysOf(b.list(ledger.ReconciliationFilter{State: state, Customer: b.customer.ID})))
		require.Equal(t, all[acmes:acmes+1], keysOf(b.list(ledger.ReconciliationFilter{State: state, Period: all[acmes].Period})))
		require.Empty(t, b.list(ledger.ReconciliationFilter{State: state, Customer: b.customer.ID, Period: all[others].Period}))
	}
	for _, filter := range []ledger.ReconciliationFilter{{}, {State: billing.ReconciliationWaived}, {State: billing.ReconciliationOpen}, {Customer: b.customer.ID}} {
		whole := keysOf(b.list(filter))
		for size := 1; size <= len(whole); size++ {
			var paged []ledger.ReconciliationKey
			for {
				page, err := dbtest.Items(b.store.Reconciliations.List(t.Context(), b.tenant, filter, size))
				require.NoError(t, err)
				if len(page) == 0 {
					break
				}
				paged = append(paged, keysOf(page)...)
				filter.Before = paged[len(paged)-1]
			}
			require.Equal(t, whole, paged)
			filter.Before = ledger.ReconciliationKey{}
		}
	}
	require.Empty(t, b.list(ledger.ReconciliationFilter{Period: math.MaxInt64}))
}

func TestPeriodBilledWithoutInvoicesIsNotReconciled(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	period := b.closed(b.month)
	require.Len(t, b.list(ledger.ReconciliationFilter{}), 1)
	_, err := b.conn.Exec(t.Context(), `update billing_connections set invoices = false where tenant_id = $1`, b.tenant)
	require.NoError(t, err)
	require.Empty(t, b.list(ledger.ReconciliationFilter{}))
	dbtest.Provider(t, b.store, b.tenant, metering.Provider{Kind: metering.Stripe, Invoices: true, Account: "acct_2", SealedSecret: []byte("sealed"), ValidatedAt: clock.Now()})
	require.Empty(t, b.list(ledger.ReconciliationFilter{}), "the new connection does not bill the period")
	_, err = b.decide(period, billing.Waive, "why")
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
}

// TestUnresolvedSkipsAgreedAndDecidedReconciliations checks that Unresolved skips reconciliations that agree, and those
// on which an operator has decided.
func TestUnresolvedSkipsAgreedAndDecidedReconciliations(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	var want []string
	for i, state := range billing.ReconciliationState("").Values() {
		period := b.closed(b.before(3 + i))
		if state != billing.ReconciliationOpen {
			b.storeReconciliation(period, state)
		}
		if state == billing.ReconciliationDisputed {
			_, err := b.decide(period, billing.Waive, "why")
			require.NoError(t, err)
		} else if state != billing.ReconciliationAgreed {
			want = append(want, string(state)+" of "+period.String())
		}
	}
	list, err := b.store.Reconciliations.Unresolved(t.Context(), b.tenant, b.customer.ID, 10)
	require.NoError(t, err)
	var got []string
	for _, u := range list {
		got = append(got, string(u.State)+" of "+u.PeriodID.String())
		require.Equal(t, []string{"calls", "10"}, []string{u.MeterSlug, u.Units.String()})
		require.Equal(t, u.State == billing.ReconciliationOpen, u.Invoiced == nil)
	}
	require.Equal(t, want, got, "the newest first")
	list, err = b.store.Reconciliations.Unresolved(t.Context(), b.tenant, b.customer.ID, 1)
	require.NoError(t, err)
	require.Len(t, list, 1)
}

func TestAnOperatorDecidesOnADiscrepancyOnce(t *testing.T) {
	t.Parallel()
	for _, state := range billing.ReconciliationState("").Values() {
		for _, decision := range billing.Decision("").Values() {
			t.Run(string(state)+" "+string(decision), func(t *testing.T) {
				t.Parallel()
				b := newBooks(t)
				period := b.closed(b.month)
				b.Period(b.customer.ID, b.before(0), false)
				_, err := b.conn.Exec(t.Context(), `update customers set look_again_at = 'infinity' where tenant_id = $1`, b.tenant)
				require.NoError(t, err)
				if state != billing.ReconciliationOpen {
					b.storeReconciliation(period, state)
				}
				before, rows := b.list(ledger.ReconciliationFilter{})[0], b.rows()
				after, err := b.decide(period, decision, "voided by mistake")
				if state == billing.ReconciliationOpen || state == billing.ReconciliationAgreed {
					require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
					require.ErrorContains(t, err, "nothing to decide")
					require.Equal(t, before, b.list(ledger.ReconciliationFilter{})[0])
					require.Empty(t, b.audited())
					return
				}
				require.NoError(t, err)
				require.Equal(t, before.Decide(decision), after.Reconciliation)
				require.Equal(t, after, b.list(ledger.ReconciliationFilter{})[0])
				var reported string
				var lookAgain bool
				require.NoError(t, b.conn.QueryRow(t.Context(), `
					select p.watermark_configuration, c.look_again_at <= $2
					from billing_periods p
					join customers c on c.tenant_id = p.tenant_id and c.id = p.customer_id
					where p.tenant_id = $1 and p.closed_at is null`, b.tenant, clock.Now()).Scan(&reported, &lookAgain))
				require.Equal(t, state != after.State, lookAgain)
				if state == after.State {
					require.Equal(t, rows, b.rows())
					require.Empty(t, b.audited())
					require.Equal(t, "reported", reported)
					return
				}
				require.Equal(t, rows+1, b.rows())
				require.Equal(t, []any{metering.Actor("key_1"), "voided by mistake"}, []any{after.Actor, after.Note})
				require.Empty(t, reported, "the hash of the settings is deleted, so the next sync plans again")
				said := []string{"reconciliation." + string(decision) + " " + period.String() + " " + b.meter.ID.String() + " voided by mistake"}
				require.Equal(t, said, b.audited())

				again, err := b.decide(period, decision, "once more")
				require.NoError(t, err)
				require.Equal(t, after, again)
				require.Equal(t, rows+1, b.rows())
				require.Equal(t, said, b.audited())
			})
		}
	}
}

func TestConcurrentDecisionsOnReconciliationAreSerialized(t *testing.T) {
	t.Parallel()
	b := newBooks(t)
	period := b.closed(b.month)
	b.storeReconciliation(period, billing.ReconciliationDisputed)
	var all sync.WaitGroup
	errs := make([]error, 8)
	for i := range errs {
		all.Go(func() {
			_, errs[i] = b.decide(period, []billing.Decision{billing.Waive, billing.Rebill}[i%2], "at once")
		})
	}
	all.Wait()
	require.NoError(t, errors.Join(errs...))
	require.Len(t, b.audited(), b.rows()-1)
	var repeated int
	require.NoError(t, b.conn.QueryRow(t.Context(), `
		select count(*)
		from (select state = lag(state) over (order by id) as repeated from billing_reconciliations where tenant_id = $1) x
		where repeated`, b.tenant).Scan(&repeated))
	require.Zero(t, repeated)
}

func TestTenantCannotDecideReconciliationOfAnotherTenant(t *testing.T) {
	t.Parallel()
	ours, theirs := newBooks(t), newBooks(t)
	period := theirs.closed(theirs.month)
	theirs.storeReconciliation(period, billing.ReconciliationDisputed)
	before := theirs.list(ledger.ReconciliationFilter{})
	require.Empty(t, ours.list(ledger.ReconciliationFilter{}))
	require.Empty(t, ours.list(ledger.ReconciliationFilter{State: billing.ReconciliationDisputed}))
	for _, f := range []ledger.ReconciliationFilter{{Customer: theirs.customer.ID}, {Period: period}} {
		require.Empty(t, ours.list(f))
	}
	ours.storeReconciliation(ours.closed(ours.month), billing.ReconciliationDisputed)
	for _, key := range []ledger.ReconciliationKey{before[0].Key(), {Period: period, Meter: ours.meter.ID}, {Meter: ours.meter.ID}, {}} {
		_, err := ours.store.Reconciliations.Decide(t.Context(), ours.tenant, key,
			ledger.Verdict{Decision: billing.Waive, Actor: "key_1", Note: "not mine"}, clock.Now())
		require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	}
	require.Equal(t, before, theirs.list(ledger.ReconciliationFilter{}))
	require.Equal(t, []int{1, 1}, []int{ours.rows(), theirs.rows()})
}

func TestReconciliationsThatFoundADiscrepancyAreCounted(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	conn, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	counted := func() map[billing.ReconciliationState]int64 {
		state, err := store.Maintenance.State(t.Context(), clock.Now())
		require.NoError(t, err)
		return state.Reconciliations
	}
	require.Equal(t, map[billing.ReconciliationState]int64{"carried": 0, "waived": 0, "disputed": 0, "written_off": 0}, counted())
	newBooksAt(t, store, conn).everyState()
	require.Equal(t, map[billing.ReconciliationState]int64{"carried": 2, "waived": 2, "disputed": 2, "written_off": 2}, counted())
}
