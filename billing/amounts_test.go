package billing_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// chargedFacts returns the facts of a customer that is billed in amounts in January. One meter counted 7 units: 1 is
// included, and each other unit costs 0.50 USD.
func chargedFacts(t *testing.T) billing.Facts {
	t.Helper()
	january := span(t, "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z")
	f := billing.Facts{
		Now: instant(t, "2026-01-20T00:00:00Z"), Customer: billing.Customer{CreatedAt: january.Start},
		Settings:   billing.Settings{Timezone: location(t, "UTC"), Currency: "USD", LatePolicy: metering.AdjustLate},
		Prices:     map[metering.MeterID][]billing.Price{},
		Connection: &billing.Connection{ID: 1, Invoices: true, Bills: metering.BillsAmounts},
		Side:       &billing.Side{Customer: "cus_1", Subscription: "sub_1", Period: january, Currency: "USD", Charges: []billing.Destination{}},
		Stored:     []billing.Period{{ID: 1, Range: january, Subscription: billing.Subscription{ID: "sub_1", Range: january}}},
	}
	addCharged(t, &f, 1)
	return f
}

// addCharged adds a meter with the usage and the price of the first one.
func addCharged(t *testing.T, f *billing.Facts, id metering.MeterID) {
	t.Helper()
	f.Meters = append(f.Meters, metering.Meter{ID: id, Slug: fmt.Sprintf("meter%d", int64(id)), Version: metering.MeterVersion{Status: metering.Complete}})
	f.Prices[id] = []billing.Price{{MeterID: id, Version: 1, Terms: billing.Terms{IncludedUnits: decimal(t, "1"), OverageRate: decimal(t, "0.50"), Currency: "USD"}}}
	f.Usage = append(f.Usage, billing.Usage{Period: f.Stored[0].Start, MeterID: id, Total: decimal(t, "7"), Events: 7})
	f.Side.Charges = append(f.Side.Charges, billing.Destination{MeterID: id, Target: "sub_1", Method: "item", Counting: billing.Replaces})
}

// set returns the series of the first meter's line, which was set to an amount.
func set(t *testing.T, f billing.Facts, amount string) billing.Reported {
	t.Helper()
	sums := billing.Sums{Any: true, Amount: decimal(t, amount), Currency: "USD"}
	return billing.Reported{
		Series: billing.Series{
			Kind: billing.ChargeReport, Connection: 1, Customer: "cus_1", Target: "sub_1", Method: "item", Counting: billing.Replaces,
			Period: f.Stored[0].Start, Window: f.Stored[0].Range,
		},
		MeterID: 1, State: billing.Accepted, Taken: sums, Standing: sums,
	}
}

func TestLineIsSetToChargeMinusAmountsOfOtherConnections(t *testing.T) {
	t.Parallel()
	elsewhere := func(f billing.Facts, amount string) billing.Reported {
		other := set(t, f, amount)
		other.Connection, other.Customer, other.Target = 9, "", ""
		return other
	}
	f := chargedFacts(t)
	for name, c := range map[string]struct {
		reported []billing.Reported
		set      string // "": nothing is reported
	}{
		"at first":                 {nil, "3"},
		"again":                    {[]billing.Reported{set(t, f, "2")}, "3"},
		"as it is":                 {[]billing.Reported{set(t, f, "3")}, ""},
		"what is billed elsewhere": {[]billing.Reported{elsewhere(f, "1.20")}, "1.8"},
		"never below nothing":      {[]billing.Reported{elsewhere(f, "8"), set(t, f, "2")}, "0"},
		"nothing makes no line":    {[]billing.Reported{elsewhere(f, "8")}, ""},
	} {
		f.Reported = c.reported
		plan := billing.NewBooks(f).Plan()
		require.Equal(t, metering.BillsAmounts, plan.Periods[0].Bills, name)
		if c.set == "" {
			require.Empty(t, plan.Reports, name)
			continue
		}
		require.Len(t, plan.Reports, 1, name)
		r := plan.Reports[0]
		require.Equal(t, c.set, r.Quantity.String(), name)
		require.Equal(t, []any{billing.ChargeReport, billing.Replaces, "sub_1", "USD"}, []any{r.Kind, r.Counting, r.Target, r.Currency}, name)
		steps := billing.NewBooks(f).Explain(plan.Periods[0], 1)
		require.True(t, steps[len(steps)-1].Amount.Equal(r.Quantity), "%s: the working ends with %s", name, steps[len(steps)-1].Amount)
	}
}

// TestMeterWithoutPriceIsCreditedInCurrencyInWhichItWasBilled replaces the provider after it billed a meter in USD. The
// meter has no price any more, and the customer's only other price is in KWD.
func TestMeterWithoutPriceIsCreditedInCurrencyInWhichItWasBilled(t *testing.T) {
	t.Parallel()
	f := chargedFacts(t)
	addCharged(t, &f, 2)
	f.Reported = []billing.Reported{set(t, f, "3")}
	f.Prices[1], f.Prices[2][0].Currency = nil, "KWD"
	f = withStatementReceiver(9, f)
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	lines := plan.Reports[0].Lines
	require.Len(t, lines, 2)
	require.Equal(t, []string{"-3", "USD"}, []string{lines[0].Amount.String(), lines[0].Currency})
	require.Equal(t, []string{"3", "KWD"}, []string{lines[1].Amount.String(), lines[1].Currency})
}

// TestLastStatementCreditsMeterThatLostItsPrice closes a period after its receiver accepted a statement of 3 USD. The
// meter has no price any more, and the tenant's currency is EUR.
func TestLastStatementCreditsMeterThatLostItsPrice(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(1, chargedFacts(t))
	f.Side = nil
	sent := billing.NewBooks(f).Plan().Reports[0]
	require.Equal(t, []string{"3", "USD"}, []string{sent.Lines[0].Amount.String(), sent.Lines[0].Currency})
	f.Statements = []billing.Sent{{ID: uuid.New(), Period: sent.Period, Number: 1, State: billing.Accepted, Lines: sent.Lines}}
	f.Prices[1], f.Settings.Currency = nil, "EUR"
	f.Now, f.MayClose = f.Stored[0].End.Add(f.Settings.Grace), true
	closing := billing.NewBooks(f).Plan().Closings[0]
	f.Stored[0].ClosedAt, f.Stored[0].Closed, f.MayClose, f.After = &f.Now, closing.Lines, false, 1
	plan := billing.NewBooks(f).Plan()
	require.NotEmpty(t, plan.Reports)
	line := plan.Reports[0].Lines[0]
	require.Equal(t, []string{"0", "USD"}, []string{line.Amount.String(), line.Currency})
}

// TestAmountsAreComparedAgainAfterTotalsAreRead plans while the totals at the provider are unread after a restore. The
// period of a billed line stays marked until it can be compared.
func TestAmountsAreComparedAgainAfterTotalsAreRead(t *testing.T) {
	t.Parallel()
	f := chargedFacts(t)
	f.Reported = []billing.Reported{set(t, f, "3")}
	f.Now, f.MayClose = f.Stored[0].End.Add(f.Settings.Grace), true
	f.Stored[0].ClosedAt, f.Stored[0].Closed = &f.Now, billing.NewBooks(f).Plan().Closings[0].Lines
	require.Empty(t, billing.NewBooks(f).Plan().PartlyKnown)
	f.Unread = true
	require.Equal(t, []time.Time{f.Stored[0].Start}, billing.NewBooks(f).Plan().PartlyKnown)
}

// A period is billed in quantities or amounts as the connection was set to bill when the period began.
func TestPeriodKeepsQuantityOrAmountFormOfItsStart(t *testing.T) {
	t.Parallel()
	f := chargedFacts(t)
	f.Connection.BillsBefore, f.Connection.BillsSince = metering.BillsQuantities, f.Stored[0].Start.Add(time.Hour)
	require.Equal(t, metering.BillsQuantities, billing.NewBooks(f).Plan().Periods[0].Bills, "it began before")
	f.Stored[0].Bills, f.Connection.BillsSince = metering.BillsQuantities, f.Stored[0].Start
	require.Equal(t, metering.BillsQuantities, billing.NewBooks(f).Plan().Periods[0].Bills, "it is decided")
	f.Stored[0].Bills = ""
	require.Equal(t, metering.BillsAmounts, billing.NewBooks(f).Plan().Periods[0].Bills)
	f.Connection.Invoices = false
	require.Empty(t, billing.NewBooks(f).Plan().Periods[0].Bills, "nobody makes invoices")
}

func TestPlanReportsNoAmountWithoutKnownTarget(t *testing.T) {
	t.Parallel()
	f := chargedFacts(t)
	f.Side.Charges = nil
	require.True(t, billing.NewBooks(f).Plan().ReadFirst)
	f.Side.Charges = []billing.Destination{{MeterID: 1, Excluded: billing.NoTarget("it has credits")}}
	plan := billing.NewBooks(f).Plan()
	require.Empty(t, plan.Reports)
	require.Equal(t, []billing.Exclusion{{MeterID: 1, MeterSlug: "meter1", ExclusionReason: billing.NoTarget("it has credits")}}, plan.Excluded)
}

func TestAPriceInAnotherCurrencyIsNotCharged(t *testing.T) {
	t.Parallel()
	f := chargedFacts(t)
	f.Side.Currency = "EUR"
	plan := billing.NewBooks(f).Plan()
	require.Empty(t, plan.Reports)
	require.Equal(t, billing.ExcludedPriceCurrency, plan.Excluded[0].Code)
}

func TestInvoiceGetsAtMost200Lines(t *testing.T) {
	t.Parallel()
	f := chargedFacts(t)
	f.Reported = []billing.Reported{set(t, f, "2")}
	for id := metering.MeterID(2); id <= 202; id++ {
		addCharged(t, &f, id)
	}
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 200, "one of them is there, and is set")
	require.Len(t, plan.Excluded, 2)
	require.Equal(t, billing.ExcludedTooManyLines, plan.Excluded[0].Code)
}

// closedJanuary returns the facts on February 5, one day after the grace. January closed at 3 USD, and its line was set
// to 2 USD.
func closedJanuary(t *testing.T) billing.Facts {
	t.Helper()
	f := chargedFacts(t)
	f.Settings.Grace, f.Now, f.MayClose = 72*time.Hour, instant(t, "2026-02-05T00:00:00Z"), true
	f.Side.Period = span(t, "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z")
	f.Stored[0].Bills, f.Reported = metering.BillsAmounts, []billing.Reported{set(t, f, "2")}
	closing := billing.NewBooks(f).Plan().Closings[0]
	f.Stored[0].ClosedAt, f.Stored[0].Closed, f.MayClose = &f.Now, closing.Lines, false
	return f
}

// The line of a closed period is set to the charge at the close until the invoice is final. After that, the next
// invoice bills the missing amount.
func TestClosedPeriodLineIsSetToClosedCharge(t *testing.T) {
	t.Parallel()
	f := closedJanuary(t)
	l := f.Stored[0].Closed[0]
	require.True(t, l.Billed)
	require.Equal(t, "3", l.Charge.String())
	f.Usage = []billing.Usage{{Period: f.Stored[0].Start, MeterID: 1, Total: decimal(t, "9"), Events: 9, Late: decimal(t, "2"), LateEvents: 2}}
	f.LateMonths = []metering.Range{f.Stored[0].Range}
	plan := billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 2)
	late, own := plan.Reports[0], plan.Reports[1]
	require.True(t, late.Late)
	require.Equal(t, []string{"1", "3"}, []string{late.Quantity.String(), own.Quantity.String()}, "what came late is a line of the next invoice")
	require.Empty(t, plan.Complete)

	f.Stored[0].Subscription.Invoiced = true
	f.Reported[0].Line = &billing.ChargeLine{Amount: decimal(t, "2"), Set: decimal(t, "2"), Currency: "USD"}
	f.Invoices = []billing.Invoice{{ID: "in_1", Connection: 1, Customer: "cus_1", Subscription: "sub_1", Period: f.Stored[0].Range, Renewal: true}}
	plan = billing.NewBooks(f).Plan()
	require.Len(t, plan.Reports, 1)
	require.True(t, plan.Reports[0].Late)
	require.Equal(t, "2", plan.Reports[0].Quantity.String(), "what its invoice lacks, and what came late")
	require.Equal(t, []billing.ReconciliationState{billing.ReconciliationCarried}, []billing.ReconciliationState{billing.NewBooks(f).Reconciled[0].State})
	require.Equal(t, "2", billing.NewBooks(f).Reconciled[0].Billed.String())
	require.Len(t, plan.Complete, 1)
}

// TestLateUsageIsNotChargedUntilLineIsLowered charges late usage of 1 USD to a period that closed at 3 USD, while its
// line is set to 5 USD. The invoice may become final before the line is lowered, and nothing is credited then.
func TestLateUsageIsNotChargedUntilLineIsLowered(t *testing.T) {
	t.Parallel()
	f := closedJanuary(t)
	f.Usage = []billing.Usage{{Period: f.Stored[0].Start, MeterID: 1, Total: decimal(t, "9"), Events: 9, Late: decimal(t, "2"), LateEvents: 2}}
	f.LateMonths = []metering.Range{f.Stored[0].Range}
	reported := func() (all []string) {
		for _, r := range billing.NewBooks(f).Plan().Reports {
			all = append(all, fmt.Sprint(r.Quantity, " ", r.Late))
		}
		return all
	}
	f.Reported = []billing.Reported{set(t, f, "5")}
	require.Equal(t, []string{"3 false"}, reported())
	lowered := set(t, f, "3")
	f.Reported[0].Standing, f.Reported[0].Outstanding, f.Reported[0].State = lowered.Standing, true, billing.Sending
	require.Empty(t, reported())
	f.Reported = []billing.Reported{lowered}
	require.Equal(t, []string{"1 true"}, reported())
}

// An amount charged to a subscription that has ended is not billed again while an invoice may still bill it.
func TestALineOfASubscriptionThatHasEndedCountsAsBilled(t *testing.T) {
	t.Parallel()
	f := closedJanuary(t)
	f.Invoices = []billing.Invoice{{ID: "sub_1", Connection: 1, Customer: "cus_1", Subscription: "sub_1", Period: f.Stored[0].Range, Renewal: true, Ended: true}}
	f.Side.Subscription = "sub_2"
	plan := billing.NewBooks(f).Plan()
	require.Empty(t, billing.NewBooks(f).Reconciled)
	require.Len(t, plan.Reports, 1)
	require.Equal(t, "1", plan.Reports[0].Quantity.String(), "3 less the 2 that are pending")
}

// An amount on a final invoice counts as billed even if its report is recorded as rejected.
func TestInvoicedLineCountsAsBilledDespiteRejectedReport(t *testing.T) {
	t.Parallel()
	f := closedJanuary(t)
	f.Reported[0].Line = &billing.ChargeLine{Amount: decimal(t, "2"), Set: decimal(t, "2"), Currency: "USD"}
	f.Reported[0].State, f.Reported[0].Taken, f.Reported[0].Standing = billing.Rejected, billing.Sums{}, billing.Sums{}
	f.Stored[0].Subscription.Invoiced = true
	f.Invoices = []billing.Invoice{{ID: "in_1", Connection: 1, Customer: "cus_1", Subscription: "sub_1", Period: f.Stored[0].Range, Renewal: true}}
	require.Equal(t, "2", billing.NewBooks(f).Reconciled[0].Billed.String())
	require.Equal(t, "1", billing.NewBooks(f).Plan().Reports[0].Quantity.String())
}

// A period billed in amounts is charged at Odometer's price, even if the provider has its own price for the meter's
// units.
func TestAmountsAreChargedAtOdometersPrice(t *testing.T) {
	t.Parallel()
	f := chargedFacts(t)
	theirs := &tariff{id: "price_1", currency: "USD"}
	f.Side.Destinations = []billing.Destination{{MeterID: 1, Target: "mtr_1", Method: "delta", Counting: billing.Adds, Price: theirs}}
	f.Stored[0].Subscription.Prices = map[metering.MeterID]billing.ProviderPrice{1: theirs}
	require.Equal(t, "3", billing.NewBooks(f).Plan().Reports[0].Quantity.String())
	shown := billing.NewBooks(f).Preview()[0]
	require.Equal(t, "3", shown.Amount.String())
	require.Nil(t, shown.Price)
	require.Nil(t, shown.Differs)
	f.Settings.Grace, f.Now, f.MayClose = time.Hour, instant(t, "2026-02-05T00:00:00Z"), true
	closed := billing.NewBooks(f).Plan().Closings[0].Lines[0]
	require.Nil(t, closed.Price)
	require.Equal(t, "3", closed.Charge.String())
}
