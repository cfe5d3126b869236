package billing_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// The tests in this file are the stories of docs/billing.md. Each story has one customer with one meter. A unit costs
// 2 USD, unless the story sets other prices. Each step has a date.

// story contains the facts about the customer as of the last step.
type story struct {
	*testing.T
	billing.Facts
	sent int64 // number of reports so far
}

// tell begins a story on 1 January. The customer's subscription bills calendar months, at a provider that adds up
// quantities and creates invoices.
func tell(t *testing.T) *story {
	t.Helper()
	f := atMeters(january, knownOf(january.Start, subscribed(january)))
	f.Connection.Invoices, f.After = true, 1_000_000
	f.Prices[1][0].Terms.OverageRate = metering.Whole(2)
	return &story{T: t, Facts: f}
}

func day(month time.Month, day int) time.Time {
	return time.Date(2026, month, day, 12, 0, 0, 0, time.UTC)
}

// uses sets the total usage of a period. If the period is closed, the usage beyond its closed line is late usage.
func (s *story) uses(at time.Time, period metering.Range, total string) {
	s.Now = at
	u := used(period, total)
	for _, p := range s.Stored {
		if l, closed := p.Line(1); closed && p.Start.Equal(period.Start) {
			u.Late, u.LateEvents = u.Total.Sub(l.Usage), 1
			s.LateMonths = []metering.Range{period}
		}
	}
	s.Usage = slices.DeleteFunc(s.Usage, func(o billing.Usage) bool { return o.Period.Equal(period.Start) })
	s.Usage = append(s.Usage, u)
}

// renews begins the next period of the subscription.
func (s *story) renews(period metering.Range) {
	s.Now, s.Side.Period = period.Start.Add(time.Minute), period
	s.Stored = append(s.Stored, subscribed(period))
}

// closes closes the oldest open period.
func (s *story) closes(at time.Time) {
	s.Helper()
	s.Now = at
	s.Facts, _ = afterClosing(s.T, s.Facts)
}

// syncs requires the planned reports to equal want, and stores them with an outcome: billing.Accepted, or
// billing.Sending if the outcome is unknown.
func (s *story) syncs(at time.Time, outcome billing.State, want ...string) {
	s.Helper()
	s.Now = at
	plan := billing.NewBooks(s.Facts).Plan()
	var got []string
	for _, r := range plan.Reports {
		got = append(got, fmt.Sprintf("%s %s for %s", r.Kind, r.Quantity, r.Of.Start.Month()))
		s.report(r, outcome)
	}
	require.Equal(s, want, got)
	s.Stored = slices.Clone(plan.Periods)
}

// report stores a report with its outcome.
func (s *story) report(r billing.Report, outcome billing.State) {
	i := slices.IndexFunc(s.Reported, func(o billing.Reported) bool { return o.Series == r.Series })
	if i < 0 {
		i = len(s.Reported)
		s.Reported = append(s.Reported, billing.Reported{})
	}
	s.sent++
	of := &s.Reported[i]
	*of = written(*of, r)
	of.Last, of.Number, of.State, of.Outstanding = uuid.UUID{byte(s.sent)}, s.sent, outcome, outcome.Outstanding()
	if outcome.Taken() {
		of.Taken = of.Standing
		return
	}
	s.Open = append(s.Open, billing.Open{ID: of.Last, Kind: r.Kind, Connection: r.Connection, Period: r.Period, State: outcome})
}

// invoices adds the final invoice of January, which bills units of the meter.
func (s *story) invoices(at time.Time, units string) {
	s.Now, s.Stored[0].Subscription.Invoiced = at, true
	s.Invoices = []billing.Invoice{renewal(units)}
}

// requireReconciled requires the result of the comparison with the final invoices, and stores it.
func (s *story) requireReconciled(state billing.ReconciliationState, reason billing.ReconciliationReason, billed string) {
	s.Helper()
	books := billing.NewBooks(s.Facts)
	require.Len(s, books.Reconciled, 1)
	r := books.Reconciled[0]
	require.Equal(s, []any{state, reason, billed}, []any{r.State, r.Reason, r.Billed.String()})
	s.Stored = books.Stored
}

// decides applies an operator's decision to the closed line of January.
func (s *story) decides(d billing.Decision) {
	line := &s.Stored[0].Closed[0]
	decided := line.Reconciled.Decide(d)
	line.Reconciled = &decided
}

// settles gives the oldest outstanding report an outcome. The accepted totals stay unchanged, as for billing.Rejected.
func (s *story) settles(outcome billing.State) {
	for i := range s.Reported {
		if r := &s.Reported[i]; r.Last == s.Open[0].ID {
			r.State, r.Outstanding, r.Standing = outcome, false, r.Taken
		}
	}
	s.Open = s.Open[1:]
}

// statement returns the first line of the next statement as text.
func (s *story) statement() string {
	s.Helper()
	reports := billing.NewBooks(s.Facts).Plan().Reports
	require.Len(s, reports, 1)
	line := reports[0].Lines[0]
	return fmt.Sprintf("%s units, %s %s", line.Quantity, line.Amount, line.Currency)
}

func TestStoryLateUsage(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.uses(day(time.January, 20), january, "100")
	s.syncs(day(time.January, 20), billing.Accepted, "quantity 100 for January")
	s.renews(february)
	s.closes(day(time.February, 5))
	s.syncs(day(time.February, 5), billing.Accepted)
	s.invoices(day(time.February, 6), "100")
	s.requireReconciled(billing.ReconciliationAgreed, billing.ReasonAgreed, "100")
	s.uses(day(time.February, 10), january, "130")
	s.syncs(day(time.February, 10), billing.Accepted, "charge 60 for January")
	s.syncs(day(time.February, 11), billing.Accepted)
}

func TestStoryTwoReportsOfUnknownOutcomeAndAVoidInvoice(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.uses(day(time.January, 20), january, "100")
	s.syncs(day(time.January, 20), billing.Accepted, "quantity 100 for January")
	s.uses(day(time.January, 25), january, "130")
	s.syncs(day(time.January, 25), billing.Sending, "quantity 30 for January")
	s.uses(day(time.January, 28), january, "140")
	require.Equal(t, []uuid.UUID{{2}}, billing.NewBooks(s.Facts).Plan().Resume, "the same report is sent again")
	s.syncs(day(time.January, 28), billing.Accepted) // no new report while the outcome of the second report is unknown
	s.renews(february)
	s.closes(day(time.February, 5))
	s.invoices(day(time.February, 6), "130")
	s.Invoices[0].Void = true
	require.Equal(t, []billing.Resolved{{ID: uuid.UUID{2}, State: billing.Rejected}}, billing.NewBooks(s.Facts).Plan().Resolved)
	s.Open = nil
	s.requireReconciled(billing.ReconciliationWaived, billing.ReasonVoid, "100")
	s.Reported[0].State, s.Reported[0].Outstanding, s.Reported[0].Standing = billing.Rejected, false, s.Reported[0].Taken
	s.syncs(day(time.February, 7), billing.Accepted, "charge 80 for January") // the 40 units that were not accepted
	s.syncs(day(time.February, 8), billing.Accepted)
	s.decides(billing.Rebill)
	s.syncs(day(time.February, 9), billing.Accepted, "charge 200 for January")
}

func TestStoryTheCustomerMovesToAnotherAccount(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.uses(day(time.January, 10), january, "100")
	s.syncs(day(time.January, 10), billing.Accepted, "quantity 100 for January")
	s.uses(day(time.January, 11), january, "110")
	s.syncs(day(time.January, 11), billing.Sending, "quantity 10 for January")

	s.Connection = &billing.Connection{ID: second, Invoices: true}
	s.Side.Customer, s.Side.Subscription = "cus_2", "sub_2"
	s.uses(day(time.January, 20), january, "150")
	require.Equal(t, []uuid.UUID{{2}}, billing.NewBooks(s.Facts).Plan().Doubt, "nobody sends it again")
	s.Open[0].State, s.Reported[0].State = billing.InDoubt, billing.InDoubt
	s.syncs(day(time.January, 20), billing.Accepted, "quantity 40 for January") // 150 less the 110 that the previous account may have
	s.settles(billing.Rejected)
	s.syncs(day(time.January, 21), billing.Accepted, "quantity 10 for January")
}

func TestStoryAWebhookReceiverIsReplaced(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.Facts = withStatementReceiver(first, s.Facts)
	s.Side, s.Stored = nil, []billing.Period{{Range: january}}
	s.uses(day(time.January, 10), january, "100")
	require.Equal(t, "100 units, 200 USD", s.statement())
	s.Reported = []billing.Reported{stated(first, january, "100", "200")}

	s.Connection = &billing.Connection{ID: second, Statements: true}
	s.uses(day(time.January, 20), january, "130")
	require.Equal(t, "30 units, 60 USD", s.statement(), "without the units of the previous receiver")
}

func TestStoryLateUsageLowersAVolumeCharge(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.Prices[1][0].Terms = billing.Terms{
		Model: billing.ModelVolume, Currency: "USD",
		Tiers: []billing.Tier{{UpTo: new(metering.Whole(100)), UnitPrice: metering.Whole(2)}, {UnitPrice: metering.Whole(1)}},
	}
	s.uses(day(time.January, 20), january, "90")
	s.syncs(day(time.January, 20), billing.Accepted, "quantity 90 for January")
	s.renews(february)
	s.closes(day(time.February, 5))
	s.invoices(day(time.February, 6), "90")
	s.requireReconciled(billing.ReconciliationAgreed, billing.ReasonAgreed, "90")
	s.uses(day(time.February, 10), january, "110")
	s.syncs(day(time.February, 10), billing.Accepted, "charge -70 for January") // 110 at 1 USD less 90 at 2 USD
}

func TestStoryATrial(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.Side.Trial = true
	s.uses(day(time.January, 20), january, "100")
	s.syncs(day(time.January, 20), billing.Accepted, "quantity 100 for January")
	s.Side.Trial = false
	s.renews(february)
	s.closes(day(time.February, 5))
	require.Equal(t, "0", s.Stored[0].Closed[0].Charge.String())
	s.invoices(day(time.February, 6), "100")
	s.requireReconciled(billing.ReconciliationAgreed, billing.ReasonAgreed, "100")
	s.uses(day(time.February, 10), january, "130")
	s.syncs(day(time.February, 10), billing.Accepted)
	late := billing.NewBooks(s.Facts).Adjustments()
	require.Equal(t, []string{"30", "0"}, []string{late[0].Quantity.String(), late[0].Amount.String()}, "late usage of a trial costs nothing either")
}

func TestStoryARestoredBackup(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.uses(day(time.January, 10), january, "100")
	s.syncs(day(time.January, 10), billing.Accepted, "quantity 100 for January")
	backup := slices.Clone(s.Reported)
	s.uses(day(time.January, 11), january, "130")
	s.syncs(day(time.January, 11), billing.Accepted, "quantity 30 for January")

	s.Reported, s.Epoch, s.Unread = backup, day(time.January, 12).Unix(), true
	s.syncs(day(time.January, 12), billing.Accepted)
	books := billing.NewBooks(s.Facts)
	lost := books.Lost([]billing.Found{{AddedUp: books.AddedUp()[0], Counted: metering.Whole(130)}})
	require.Len(t, lost, 1)
	require.Equal(t, "30", lost[0].Quantity.String(), "the ledger stores what it lacks, as one report")
	s.report(lost[0], billing.Counted)
	s.Unread = false
	s.uses(day(time.January, 14), january, "150")
	s.syncs(day(time.January, 14), billing.Accepted, "quantity 20 for January")
}

func TestStoryAPriceChangesWithinAPeriod(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.Facts = withStatementReceiver(first, s.Facts)
	s.Side, s.Stored = nil, []billing.Period{{Range: january}}
	s.Prices[1] = append(s.Prices[1], billing.Price{
		MeterID: 1, Version: 2, EffectiveFrom: day(time.January, 15), Terms: billing.Terms{OverageRate: metering.Whole(3), Currency: "USD"},
	})
	s.uses(day(time.January, 20), january, "100")
	require.Equal(t, "100 units, 200 USD", s.statement(), "January has the price of its first instant")
	s.Reported = []billing.Reported{stated(first, january, "100", "200")}
	s.Stored = []billing.Period{closedAt(january, "100", "200"), {Range: february}}
	s.uses(day(time.February, 10), february, "10")
	require.Equal(t, "10 units, 30 USD", s.statement())
}

func TestStoryASubscriptionIsReplaced(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.uses(day(time.January, 10), january, "100")
	s.syncs(day(time.January, 10), billing.Accepted, "quantity 100 for January")
	s.Side.Subscription, s.Side.Period = "sub_2", metering.Range{Start: day(time.January, 15), End: day(time.February, 15)}
	s.uses(day(time.January, 20), january, "130")
	s.syncs(day(time.January, 20), billing.Accepted, "quantity 30 for January")
}

func TestStoryAHeldInvoice(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.uses(day(time.January, 20), january, "100")
	s.syncs(day(time.January, 20), billing.Accepted, "quantity 100 for January")
	s.renews(february)
	draft := billing.Draft{
		Automatic: true, FinalizesAt: day(time.February, 6), Currency: "USD",
		Lines: []billing.DraftLine{{
			MeterID: 1, Metered: true, Quantity: metering.Whole(100), Amount: metering.Whole(200), UnitPrice: new(metering.Whole(2)),
		}},
	}
	hold := billing.HoldFacts{
		GraceUntil: subscribed(january).Deadline(s.Settings.Grace), Deadline: draft.FinalizesAt, Before: draft, Draft: draft,
		Places: []billing.HeldPlace{{MeterID: 1, Reported: metering.Whole(100), Counted: metering.Whole(100), Terms: &s.Prices[1][0].Terms}},
	}
	decide := func(at time.Time) billing.HoldDecision {
		hold.Now = at
		return hold.Decide()
	}
	require.True(t, decide(february.Start.Add(time.Hour)).SendHold)
	hold.Hold.State = billing.Accepted
	require.Equal(t, billing.HoldDecision{State: billing.Held, Until: hold.GraceUntil}, decide(day(time.February, 2)))

	s.uses(day(time.February, 3), january, "120")
	s.syncs(day(time.February, 3), billing.Accepted, "quantity 20 for January")
	hold.Places[0].Reported = metering.Whole(120)
	require.True(t, decide(hold.GraceUntil).Sync, "another sync reports the usage until the end of the grace")
	hold.Sync.Status = metering.SyncSucceeded
	waiting := decide(hold.GraceUntil.Add(time.Minute))
	require.Equal(t, billing.Held, waiting.State)
	require.Equal(t, []billing.HoldCode{billing.HoldNotCounted}, codesOf(waiting))
	hold.Places[0].Counted = metering.Whole(120)
	require.True(t, decide(hold.GraceUntil.Add(10*time.Minute)).Release)

	s.closes(day(time.February, 5))
	s.invoices(day(time.February, 5), "120")
	s.requireReconciled(billing.ReconciliationAgreed, billing.ReasonAgreed, "120")
}

func TestStoryAWholeInvoiceIsCredited(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.uses(day(time.January, 20), january, "100")
	s.syncs(day(time.January, 20), billing.Accepted, "quantity 100 for January")
	s.renews(february)
	s.closes(day(time.February, 5))
	s.invoices(day(time.February, 6), "100")
	s.requireReconciled(billing.ReconciliationAgreed, billing.ReasonAgreed, "100")
	s.Invoices[0].Void = true // no payment is due for an invoice that credit notes take back as a whole
	s.requireReconciled(billing.ReconciliationWaived, billing.ReasonVoid, "100")
	s.syncs(day(time.February, 11), billing.Accepted)
	s.decides(billing.Rebill)
	s.syncs(day(time.February, 12), billing.Accepted, "charge 200 for January")
}

func TestStoryAThresholdInvoice(t *testing.T) {
	t.Parallel()
	s := tell(t)
	s.uses(day(time.January, 14), january, "60")
	s.syncs(day(time.January, 14), billing.Accepted, "quantity 60 for January")
	s.Invoices = []billing.Invoice{threshold("60")}
	s.uses(day(time.January, 20), january, "100")
	s.syncs(day(time.January, 20), billing.Accepted, "quantity 40 for January")
	s.renews(february)
	s.closes(day(time.February, 5))
	s.invoices(day(time.February, 6), "40")
	s.Invoices = append(s.Invoices, threshold("60"))
	s.requireReconciled(billing.ReconciliationAgreed, billing.ReasonAgreed, "100")
	s.syncs(day(time.February, 7), billing.Accepted)
}
