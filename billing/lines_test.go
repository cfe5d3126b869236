package billing_test

import (
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// A line of a statement excludes units and amounts that other series bill: the last value that each series was
// reported, or the sum if the series adds up.
func TestStatementLineExcludesUnitsAndAmountsOfOtherSeries(t *testing.T) {
	t.Parallel()
	series := func(change func(*billing.Reported)) billing.Reported {
		r := stated(second, january, "4", "400")
		r.Standing.Added, r.Taken.Added = metering.Whole(1), metering.Whole(1)
		change(&r)
		return r
	}
	for name, c := range map[string]struct {
		reported         billing.Reported
		quantity, amount string // for 10 units at 100 USD each
	}{
		"AStatement":             {series(func(*billing.Reported) {}), "6", "600"},
		"AQuantityThatIsAddedUp": {series(func(r *billing.Reported) { r.Kind, r.Counting = billing.QuantityReport, billing.Adds }), "9", "600"},
		"ACharge":                {series(func(r *billing.Reported) { r.Kind, r.Counting = billing.ChargeReport, billing.Adds }), "6", "999"},
		"InAnotherCurrency":      {series(func(r *billing.Reported) { r.Standing.Currency = "EUR" }), "6", "1000"},
		"NotTakenForSure":        {series(func(r *billing.Reported) { r.Taken, r.State = billing.Sums{}, billing.InDoubt }), "6", "600"},
		"MoreThanIsOnItsWay": {series(func(r *billing.Reported) {
			r.Standing.Value, r.Standing.Amount = metering.Whole(2), metering.Whole(200)
		}), "6", "600"},
		"LessThanIsOnItsWay": {series(func(r *billing.Reported) {
			r.Taken.Value, r.Taken.Amount = metering.Whole(2), metering.Whole(200)
		}), "6", "600"},
		"MoreThanIsOnItsWayInAnotherCurrency": {series(func(r *billing.Reported) {
			r.Standing.Value, r.Standing.Amount, r.Standing.Currency = metering.Whole(2), metering.Whole(200), "EUR"
		}), "6", "1000"},
		"TakenBackByWhatIsOnItsWay": {series(func(r *billing.Reported) {
			r.Taken = billing.Sums{}
			r.Standing.Amount = metering.Whole(-50)
		}), "6", "1000"},
		"Refused":        {series(func(r *billing.Reported) { r.Standing = billing.Sums{} }), "10", "1000"},
		"AnotherPeriods": {series(func(r *billing.Reported) { r.Period = february.Start }), "10", "1000"},
		"AnotherMeters":  {series(func(r *billing.Reported) { r.MeterID = 2 }), "10", "1000"},
		"LateUsages":     {series(func(r *billing.Reported) { r.Late = true }), "10", "1000"},
		"ItsOwn":         {series(func(r *billing.Reported) { r.Connection = first }), "10", "1000"},
	} {
		f := withStatementReceiver(first, knownOf(january.Start.AddDate(0, 0, 20), billing.Period{Range: january}))
		f.Usage = []billing.Usage{used(february, "77"), used(january, "10")}
		f.Reported = []billing.Reported{c.reported}
		line := billing.NewBooks(f).Plan().Reports[0].Lines[0]
		require.Equal(t, c.quantity, line.Quantity.String(), name)
		require.Equal(t, c.amount, line.Amount.String(), name)
		require.Equal(t, "10", line.Usage.String(), name)
		require.Equal(t, "1000", line.Charge.String(), name)
	}
}

// Another connection may have billed up to 10 calls, with an unknown outcome. At a volume price, 9 calls can cost more
// than 10. The statement therefore bills only the remainder of the highest possible charge.
func TestStatementDeductsHighestPossibleChargeAtVolumePrice(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		arrived, mayArrive string
		amount             string // for 12 calls: up to 9 cost 10 USD each, and 10 or more cost 5 USD each
	}{
		"ItArrived":     {"10", "10", "10"},
		"ItDidNot":      {"0", "0", "60"},
		"ItMay":         {"0", "10", "-30"},
		"AllOrOneMore":  {"10", "11", "5"},
		"NothingBefore": {"9", "9", "-30"},
	} {
		r := counted(january, c.arrived)
		r.Connection, r.Counting = second, billing.Adds
		r.Standing = billing.Sums{Any: true, Value: decimal(t, c.mayArrive), Added: decimal(t, c.mayArrive), Currency: "USD", Theirs: true}
		r.Taken = billing.Sums{Any: true, Value: decimal(t, c.arrived), Added: decimal(t, c.arrived), Currency: "USD", Theirs: true}
		r.Outstanding = c.arrived != c.mayArrive
		f := withStatementReceiver(first, knownOf(january.Start.AddDate(0, 0, 20), billing.Period{Range: january}))
		f.Prices[1][0].Terms = billing.Terms{Model: billing.ModelVolume, Currency: "USD", Tiers: []billing.Tier{upTo("9", "10", "0"), upTo("", "5", "0")}}
		f.Usage = []billing.Usage{used(january, "12")}
		f.Reported = []billing.Reported{r}
		require.Equal(t, c.amount, billing.NewBooks(f).Plan().Reports[0].Lines[0].Amount.String(), name)
	}
}

// A meter that an operator excludes is stated as in the last accepted statement, or not at all. The same holds for its
// late usage.
func TestExcludedMeterIsStatedAsInLastAcceptedStatement(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "10", "1000"), billing.Period{Range: february}))
	f.Meters = append(f.Meters,
		metering.Meter{ID: 2, Slug: "bytes", Version: metering.MeterVersion{Status: metering.Backfilling}},
		metering.Meter{ID: 3, Slug: "seats", Version: metering.MeterVersion{Status: metering.Complete}})
	f = withLate(f, january, "12", "2")
	f.Usage = append(f.Usage, used(february, "3"))
	f.Excluded = []metering.MeterID{1}
	plan := billing.NewBooks(f).Plan()
	require.Equal(t, []billing.Exclusion{
		{MeterID: 1, MeterSlug: "calls", ExclusionReason: billing.ExclusionReason{Code: billing.ExcludedByOperator}}, {MeterID: 2, MeterSlug: "bytes", ExclusionReason: billing.ExclusionReason{Code: billing.ExcludedBackfilling}},
	}, plan.Excluded)
	require.Len(t, plan.Reports[0].Lines, 1)
	require.EqualValues(t, 3, plan.Reports[0].Lines[0].MeterID)

	f.Excluded = nil
	taken := billing.NewBooks(f).Plan().Reports[0].Lines
	require.Len(t, taken, 3)
	refused := []billing.Line{taken[0], taken[1], taken[2]}
	refused[0].Usage = metering.Whole(100)
	f.Statements = []billing.Sent{
		{ID: uuid.UUID{1}, Period: february.Start, Number: 1, State: billing.Accepted, Lines: taken},
		{ID: uuid.UUID{2}, Period: february.Start, Number: 2, State: billing.Rejected, Lines: refused},
	}
	f.Usage[1] = used(february, "5")
	f.Usage[0] = usedLate(january, "19", "9")
	f.Excluded = []metering.MeterID{1}
	plan = billing.NewBooks(f).Plan()
	lines := plan.Reports[0].Lines
	require.Len(t, lines, 3)
	require.Equal(t, "3", lines[0].Usage.String())
	require.Equal(t, "12", lines[2].Usage.String())
	require.Equal(t, []billing.Exclusion{{MeterID: 2, MeterSlug: "bytes", ExclusionReason: billing.ExclusionReason{Code: billing.ExcludedBackfilling}}}, plan.Excluded)
}

// Late usage stays in the target period's statements once it was stated, even if it becomes zero.
func TestAStatementRepeatsLateUsage(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(february.Start.AddDate(0, 0, 20), closedAt(january, "10", "1000"), billing.Period{Range: february}))
	f = withLate(f, january, "10", "0")
	require.Len(t, billing.NewBooks(f).Plan().Reports[0].Lines, 1)

	f = withLate(f, january, "12", "2")
	lines := billing.NewBooks(f).Plan().Reports[0].Lines
	require.Len(t, lines, 2)
	f.Statements = []billing.Sent{{ID: uuid.UUID{1}, Period: february.Start, Number: 1, State: billing.Accepted, Lines: lines}}
	f = withLate(f, january, "10", "0")
	again := billing.NewBooks(f).Plan().Reports[0].Lines
	require.Len(t, again, 2)
	require.Equal(t, "0", again[1].Quantity.String())

	f.Stored[0].Closed[0].Terms.OverageRate = metering.Whole(50)
	f.Statements = nil
	lines = billing.NewBooks(f).Plan().Reports[0].Lines
	require.Len(t, lines, 2, "its charge was not that of its terms")
	require.Equal(t, "-500", lines[1].Amount.String())

	f.Stored[0].Closed[0].Terms.OverageRate = metering.Whole(0)
	f.Stored[0].Closed[0].Charge = metering.Whole(0)
	f = withLate(f, january, "12", "2")
	lines = billing.NewBooks(f).Plan().Reports[0].Lines
	require.Len(t, lines, 2, "units that cost nothing")
	require.Equal(t, "2", lines[1].Quantity.String())
}

// A statement has the currency that all of its lines have in common, or else the tenant's currency.
func TestCurrencyOfReturnsCommonOrTenantCurrency(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		currencies []string
		want       string
	}{{nil, "USD"}, {[]string{"EUR", "EUR"}, "EUR"}, {[]string{"EUR", "JPY"}, "USD"}, {[]string{"JPY"}, "JPY"}} {
		lines := make([]billing.Line, len(c.currencies))
		for i, currency := range c.currencies {
			lines[i].Currency = currency
		}
		require.Equal(t, c.want, billing.CurrencyOf(lines, billing.Settings{Currency: "USD"}))
	}
}

// A meter without a price has the currency that the prices of the other meters have in common. Backfilling meters do
// not count.
func TestMeterWithoutPriceHasCommonCurrencyOfOtherMeters(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(first, knownOf(january.Start.AddDate(0, 0, 20), billing.Period{Range: january}))
	f.Meters = append(f.Meters,
		metering.Meter{ID: 2, Version: metering.MeterVersion{Status: metering.Backfilling}},
		metering.Meter{ID: 3, Version: metering.MeterVersion{Status: metering.Complete}})
	f.Prices[1][0].Currency = "EUR"
	f.Prices[2] = []billing.Price{{MeterID: 2, Version: 1, Terms: billing.Terms{Currency: "JPY"}}}
	lines := billing.NewBooks(f).Plan().Reports[0].Lines
	require.Len(t, lines, 2)
	require.Equal(t, "EUR", lines[1].Currency, "what is left out has no say")

	f.Meters[1].Version.Status = metering.Complete
	require.Equal(t, "USD", billing.NewBooks(f).Plan().Reports[0].Lines[2].Currency)
}

// The configuration hash changes with each fact that a period's charges depend on, except usage and the customer's own
// prices.
func TestConfigurationHashChangesWithBillingSettings(t *testing.T) {
	t.Parallel()
	hash := func(change func(*billing.Facts)) string {
		f := withStatementReceiver(first, knownOf(january.Start))
		f.Prices[1] = append(f.Prices[1], billing.Price{MeterID: 1, Version: 2, PlanID: 5}, billing.Price{MeterID: 1, Version: 3, EffectiveFrom: february.Start})
		change(&f)
		plan := billing.PlanAt(f.Customer.Plans, january.Start)
		return billing.Configuration(*f.Connection, f.Settings.LatePolicy, f.Meters, f.Prices, plan, january.Start)
	}
	known := map[string]string{hash(func(*billing.Facts) {}): "nothing"}
	for name, change := range map[string]func(*billing.Facts){
		"account": func(f *billing.Facts) { f.Connection.ID = second },
		"mapping": func(f *billing.Facts) { f.Connection.Mapping = map[string]string{"calls": "price_1"} },
		"policy":  func(f *billing.Facts) { f.Settings.LatePolicy = metering.ReportLate },
		"meter":   func(f *billing.Facts) { f.Meters[0].ID = 2 },
		"version": func(f *billing.Facts) { f.Meters[0].Version.ID = 2 },
		"status":  func(f *billing.Facts) { f.Meters[0].Version.Status = metering.Backfilling },
		"scale":   func(f *billing.Facts) { f.Meters[0].UsageScale = 3 },
		"plan":    func(f *billing.Facts) { f.Customer.Plans = []billing.Assignment{{PlanID: 5}} },
		"price":   func(f *billing.Facts) { f.Prices[1][2].EffectiveFrom = january.Start },
		"meters":  func(f *billing.Facts) { f.Meters = append(f.Meters, f.Meters[0]) },
	} {
		h := hash(change)
		require.Empty(t, known[h], name)
		known[h] = name
	}
	require.Equal(t, "nothing", known[hash(func(f *billing.Facts) { f.Meters[0].Slug = "renamed" })])
}

// The price of a plan comes before the meter's own, which applies to customers without a plan and
// to meters that the plan does not price.
func TestPlanPriceTakesPrecedenceOverMeterPrice(t *testing.T) {
	t.Parallel()
	versions := []billing.Price{{Version: 1}, {Version: 2, PlanID: 5}, {Version: 3, PlanID: 6, EffectiveFrom: february.Start}}
	for plan, want := range map[metering.PlanID]int{0: 1, 5: 2, 6: 1, 7: 1} {
		price, ok := billing.PriceAt(versions, plan, january.Start)
		require.True(t, ok)
		require.Equal(t, want, price.Version)
	}
	price, _ := billing.PriceAt(versions, 6, february.Start)
	require.Equal(t, 3, price.Version)
	_, ok := billing.PriceAt(versions[1:2], 0, january.Start)
	require.False(t, ok)
}

// Units can be missing on the final invoices of another connection to which they were reported. A statement bills these
// units at the period's price. The base price counts as billed with the first invoiced unit.
func TestStatementBillsUnitsMissingOnOtherConnectionsInvoices(t *testing.T) {
	t.Parallel()
	f := withStatementReceiver(second, knownOf(january.Start.AddDate(0, 0, 20), billing.Period{Range: january}))
	f.Usage = []billing.Usage{used(january, "12")}
	left := func(amount, invoiced int64) [3]string {
		r := counted(january, "10")
		r.Taken.Amount, r.Taken.Currency = metering.Whole(amount), "USD"
		r.Standing = r.Taken
		f.Reported, f.Invoices = []billing.Reported{r}, []billing.Invoice{renewal(metering.Whole(invoiced).String())}
		working := billing.NewBooks(f).StatementOf(f.Stored[0]).Lines[0].Working
		return [3]string{
			stepNamed(working, billing.StepQuantity).Amount.String(), stepNamed(working, billing.StepOther).Amount.String(), stepNamed(working, billing.StepAmount).Amount.String(),
		}
	}
	require.Equal(t, [3]string{"5", "700", "500"}, left(1000, 7))
	f = atBasic(f)
	require.Equal(t, [3]string{"12", "0", "10"}, left(10, 0))
	require.Equal(t, [3]string{"11", "10", "0"}, left(10, 1))
}
