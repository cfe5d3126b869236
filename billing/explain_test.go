package billing_test

import (
	"fmt"
	"math/big"
	"reflect"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// TestEveryAmountHasItsWorking simulates 120 histories of a customer. After each step, it recomputes every breakdown
// with rationals, and checks that the plan, the statements and the preview have equal amounts.
func TestEveryAmountHasItsWorking(t *testing.T) {
	t.Parallel()
	w := workings{seen: make(map[string]int)}
	for seed := range uint64(120) {
		l := live(seed, script(seed), circumstances{look: w.checkBreakdowns})
		require.Empty(t, l.failure, "SEED=%d", seed)
	}
	for _, what := range []string{
		billing.StepUnits, billing.StepClosed, billing.StepOther, billing.StepOtherUnits, billing.StepAdjustment, billing.StepAll, billing.StepPart,
		billing.StepTrial, billing.StepProvider, billing.StepPackages, billing.StepTier, billing.StepTierFlatFee, billing.StepPerUnits, billing.StepMinimum, billing.StepMaximum, billing.StepPriceLine, billing.StepRateCharge, billing.StepDefaultCharge, billing.StepUnrated, billing.StepDimension, "statement", "quantity", "charge", "adjusts", "closed", "late", "previewed", "reported on",
	} {
		require.Greater(t, w.seen[what], 3, "%q is hardly ever seen", what)
	}
}

// workings counts, by name, the steps that the test has recomputed and the comparisons that it has made.
type workings struct{ seen map[string]int }

// checkBreakdowns checks the breakdowns of all statements, planned reports and preview lines of the life's current
// facts.
func (w workings) checkBreakdowns(l *life) {
	f := l.facts(l.now, l.number)
	statements := make(map[int64]billing.Statement)
	for _, p := range billing.ExpectedPeriods(f) {
		s := billing.NewBooks(f).StatementOf(p)
		statements[p.Start.UnixMicro()] = s
		w.checkStatement(l, f, s)
	}
	for _, r := range billing.NewBooks(f).Plan().Reports {
		if r.Destination.Window == "" {
			w.checkReport(l, r, statements)
		}
	}
	w.checkPreview(l, f, statements)
}

// checkStatement recomputes the breakdowns of a statement, and compares its amounts with them.
func (w workings) checkStatement(l *life, f billing.Facts, s billing.Statement) {
	for _, line := range s.Lines {
		w.recount(l, line.Working)
		if line.LateWorking != nil {
			w.seen["late"]++
			w.recount(l, line.LateWorking)
			w.checkSame(l, "late usage", line.LateCharge, amountOf(line.LateWorking))
		}
		if s.ClosedAt != nil {
			w.seen["closed"]++
		}
		w.checkSame(l, "the statement's amount", line.Amount, line.Working[len(line.Working)-1].Amount)
		w.checkSame(l, "the statement's charge", line.Charge, stepNamed(line.Working, billing.StepCharge).Amount)
		units, events := stepNamed(line.Working, billing.StepUsage).Amount, line.Events
		if rounded := stepNamed(line.Working, billing.StepUnits); rounded.Name != "" {
			units, events = rounded.Amount, 0
		}
		groups := l.groups(line.MeterID, s.Period.Range)
		if s.ClosedAt != nil {
			groups = l.closedGroups[l.key(line.MeterID, s.Period.Start)]
		}
		oracle := l.charged(line.Price, line.MeterID, line.PriceVersion, countedUsage{rational(units), events, groups})
		if stepNamed(line.Working, billing.StepTrial).Name != "" && l.onTrial(s.Period) {
			oracle = new(big.Rat)
		}
		if (line.PriceVersion > 0 || line.Price != nil) && rational(line.Charge).Cmp(oracle) != 0 {
			l.failf("%+v is charged; the oracle says %s", line, oracle.FloatString(4))
		}
		if !reflect.DeepEqual(billing.NewBooks(f).Explain(s.Period, line.MeterID), line.Working) {
			l.failf("the working of meter %d is another by itself", line.MeterID)
		}
	}
}

// checkReport compares the lines of a planned report with the breakdown in the statement of the same period.
func (w workings) checkReport(l *life, r billing.Report, statements map[int64]billing.Statement) {
	w.seen[string(r.Kind)]++
	w.checkVerification(l, r)
	start := r.Of.Start
	if r.Kind == billing.ChargeReport && r.Late {
		start = r.Window.Start
	}
	for _, line := range r.Lines {
		i := slices.IndexFunc(statements[start.UnixMicro()].Lines, func(s billing.StatementLine) bool { return s.MeterID == line.MeterID })
		if i < 0 {
			l.failf("nothing is stated of meter %d, which is reported", line.MeterID)
			return
		}
		stated := statements[start.UnixMicro()].Lines[i]
		if line.Closed.IsZero() && statements[start.UnixMicro()].ClosedAt != nil { // several series can bill parts of a closed line
			w.seen["reported on"]++
			w.checkSame(l, "the usage that is reported on", line.Usage, stepNamed(stated.Working, billing.StepUsage).Amount)
			continue
		}
		if line.Closed.IsZero() {
			w.checkSame(l, "the planned quantity", line.Quantity, quantityOf(stated.Working))
			if trial := stepNamed(stated.Working, billing.StepTrial); trial.Name != "" { // in a trial, reports have Odometer's price, so that no other connection charges these units
				w.checkSame(l, "the planned charge in a trial", line.Charge, billing.RoundMoney(trial.Amount, line.Currency))
				continue
			}
			w.checkSame(l, "the planned amount", line.Amount, amountOf(stated.Working))
			w.checkSame(l, "the planned charge", line.Charge, stated.Charge)
			continue
		}
		w.seen["adjusts"]++
		amount := metering.Decimal{}
		for _, s := range stated.Working {
			if s.Name == billing.StepAdjustment && s.Closed.Start.Equal(line.Closed) {
				amount = s.Amount
				w.checkSame(l, "the planned quantity of late usage", line.Quantity, quantityOf(s.Of))
			}
		}
		if stated.Currency == line.Currency {
			w.checkSame(l, "the planned adjustment", line.Amount, amount)
		}
	}
}

// checkVerification checks that a receiver of a statement recomputes the same amounts with client.VerifyStatement.
func (w workings) checkVerification(l *life, r billing.Report) {
	if r.Kind != billing.StatementReport {
		return
	}
	var periods []metering.Range
	for _, p := range l.allPeriods() {
		periods = append(periods, p.Range)
	}
	framed, err := webhook.NewProvider(nil).Frame(billing.Message{Report: r, Periods: periods, Now: l.now})
	if err == nil {
		err = client.VerifyStatement(framed.Body)
	}
	if err != nil {
		l.failf("a receiver refuses the statement: %s\n%s", err, framed.Body)
	}
}

// checkPreview recomputes the breakdowns of the preview, and compares them with the statement of the current period.
func (w workings) checkPreview(l *life, f billing.Facts, statements map[int64]billing.Statement) {
	current := statements[billing.CurrentPeriod(f).Start.UnixMicro()]
	for _, line := range billing.NewBooks(f).Preview() {
		if line.Excluded.Code == billing.ExcludedBackfilling {
			continue
		}
		w.recount(l, line.Working)
		if line.LateFor != nil {
			w.checkSame(l, "the preview of late usage", line.Amount, amountOf(line.Working))
			continue
		}
		w.checkSame(l, "the previewed amount", line.Amount, firstOf(line.Working, billing.StepExact, billing.StepProvider).Sub(stepNamed(line.Working, billing.StepTrial).Amount))
		for _, s := range current.Lines {
			if s.MeterID == line.MeterID && current.ClosedAt == nil {
				w.seen["previewed"]++
				if !reflect.DeepEqual(line.Working, s.Working[:len(line.Working)]) {
					l.failf("the preview's working is\n%+v\nand the statement's\n%+v", line.Working, s.Working)
				}
			}
		}
	}
}

// checkSame fails the life if a figure differs from the result of its breakdown.
func (w workings) checkSame(l *life, what string, a, b metering.Decimal) {
	if !a.Equal(b) {
		l.failf("%s is %s, and by its working %s", what, a, b)
	}
}

// stepNamed returns the first step with a name, or an empty step.
func stepNamed(steps []billing.Step, name string) (s billing.Step) {
	if i := slices.IndexFunc(steps, func(s billing.Step) bool { return s.Name == name }); i >= 0 {
		s = steps[i]
	}
	return s
}

// firstOf returns the amount of the first of the named steps that exists. It panics if none exists.
func firstOf(steps []billing.Step, names ...string) metering.Decimal {
	for _, name := range names {
		if s := stepNamed(steps, name); s.Name != "" {
			return s.Amount
		}
	}
	panic(fmt.Sprintf("there is no %v in %+v", names, steps))
}

// amountOf returns the amount of a breakdown. Without deductions, this is the charge.
func amountOf(steps []billing.Step) metering.Decimal {
	return firstOf(steps, billing.StepAmount, billing.StepCharge)
}

// quantityOf returns the units that a breakdown bills. Without deductions, these are the reported units, else the
// usage.
func quantityOf(steps []billing.Step) metering.Decimal {
	return firstOf(steps, billing.StepQuantity, billing.StepUnits, billing.StepUsage)
}

// recount recomputes each step from the steps before it, or from its parts. It returns the last amount before rounding.
func (w workings) recount(l *life, steps []billing.Step) (last *big.Rat) {
	at := make(map[string]*big.Rat)
	adjusted, rates := new(big.Rat), new(big.Rat)
	known := func(names ...string) *big.Rat {
		for _, name := range names {
			if r, is := at[name]; is {
				return r
			}
		}
		return new(big.Rat)
	}
	units := func() *big.Rat {
		return known(billing.StepUnits, billing.StepTotal, billing.StepUsage, billing.StepRateUnits)
	}
	for _, s := range steps {
		w.seen[s.Name]++
		want := rational(s.Amount)
		switch s.Name {
		case billing.StepTotal:
			want = new(big.Rat).Add(at[billing.StepUsage], at[billing.StepLate])
		case billing.StepUnits:
			if s.Digits != nil {
				want = units()
			}
		case billing.StepOverage:
			if want = new(big.Rat).Sub(units(), at[billing.StepIncluded]); want.Sign() < 0 {
				want = new(big.Rat)
			}
		case billing.StepUsageFee:
			want = new(big.Rat).Mul(at[billing.StepOverage], at[billing.StepRate])
		case billing.StepExact:
			want = new(big.Rat).Add(at[billing.StepBase], known(billing.StepModelCharge, billing.StepUsageFee))
			want = upper(want, known(billing.StepMinimum))
			if most := at[billing.StepMaximum]; most != nil {
				want = lower(want, most)
			}
		case billing.StepRateUnits, billing.StepUnrated:
			want = w.sum(l, s.Of)
		case billing.StepRateCharge, billing.StepDefaultCharge:
			want = w.recount(l, s.Of)
			rates.Add(rates, want)
		case billing.StepRest, billing.StepPackages, billing.StepUnitCharges, billing.StepFlatFees, billing.StepFixedFees, billing.StepModelCharge:
			if want = rates; s.Name != billing.StepModelCharge || at[billing.StepRest] != nil {
				want = w.recountModel(s, at, units())
			}
		case billing.StepProvider:
			want = w.lines(l, s)
		case billing.StepTrial:
			want = known(billing.StepExact, billing.StepProvider)
		case billing.StepCharge:
			want = new(big.Rat).Sub(known(billing.StepExact, billing.StepProvider), known(billing.StepTrial))
		case billing.StepOtherUnits:
			want = w.sum(l, s.Of)
		case billing.StepOther:
			if at[billing.StepProvider] == nil || at[billing.StepLate] != nil {
				want = w.sum(l, s.Of)
			}
		case billing.StepQuantity:
			want = new(big.Rat).Sub(units(), new(big.Rat).Add(known(billing.StepClosedUnits, billing.StepUnbilledUnits), known(billing.StepOtherUnits)))
			want.Sub(want, known(billing.StepOnlyUnits))
			if want.Sign() < 0 && s.Amount.IsZero() {
				want = new(big.Rat) // the destination takes no negative quantities
			}
		case billing.StepAmount:
			want = new(big.Rat).Sub(at[billing.StepCharge], new(big.Rat).Add(known(billing.StepClosed, billing.StepUnbilled), known(billing.StepOther)))
			want.Sub(want, known(billing.StepOnly))
			if want.Sign() < 0 && s.Amount.IsZero() && l.connection != nil && !l.connection.Statements {
				want = new(big.Rat) // a line that is billed in amounts is never negative
			}
		case billing.StepAdjustment:
			if stepNamed(s.Of, billing.StepPart).Name != "" { // of a closed target period, which has reported parts
				want = w.sum(l, s.Of)
			} else {
				w.recount(l, s.Of)
				want = rational(amountOf(s.Of))
			}
			adjusted.Add(adjusted, want)
		case billing.StepAll:
			want = new(big.Rat).Add(known(billing.StepAmount, billing.StepCharge), adjusted)
		}
		if last = want; s.Digits != nil {
			want = rounded(want, int(*s.Digits))
		}
		if want.Cmp(rational(s.Amount)) != 0 {
			l.failf("the step %s is %s instead of %s in\n%+v", s.Name, s.Amount, want.FloatString(12), steps)
		}
		at[s.Name] = want
	}
	return last
}

// recountModel recomputes the amount of a step of a pricing model, for a number of units.
func (w workings) recountModel(s billing.Step, at map[string]*big.Rat, units *big.Rat) *big.Rat {
	product := func(a, b *big.Rat) *big.Rat { return new(big.Rat).Mul(a, b) }
	sum := new(big.Rat)
	for _, part := range s.Of {
		w.seen[part.Name]++
		sum.Add(sum, rational(part.Amount))
	}
	switch s.Name {
	case billing.StepRest:
		return upper(new(big.Rat), new(big.Rat).Sub(units, at[billing.StepIncluded]))
	case billing.StepPackages:
		packages := new(big.Rat).Quo(at[billing.StepRest], at[billing.StepPackageSize])
		whole, part := new(big.Int).DivMod(packages.Num(), packages.Denom(), new(big.Int))
		if part.Sign() > 0 {
			whole.Add(whole, big.NewInt(1))
		}
		return new(big.Rat).SetInt(whole)
	case billing.StepUnitCharges:
		switch {
		case at[billing.StepUnitPrice] != nil:
			return product(at[billing.StepRest], at[billing.StepUnitPrice])
		case at[billing.StepPercent] != nil:
			return product(product(at[billing.StepRest], at[billing.StepPercent]), big.NewRat(1, 100))
		}
		var charges, tiers big.Rat
		for _, tier := range s.Of {
			charges.Add(&charges, product(rational(tier.Of[0].Amount), rational(tier.Of[1].Amount)))
			tiers.Add(&tiers, rational(tier.Of[0].Amount))
		}
		if tiers.Cmp(at[billing.StepRest]) != 0 || charges.Cmp(sum) != 0 {
			return new(big.Rat).SetInt64(-1)
		}
	case billing.StepFixedFees:
		return product(at[billing.StepFixedFee], big.NewRat(s.Events, 1))
	case billing.StepModelCharge:
		charge := new(big.Rat)
		if packages := at[billing.StepPackages]; packages != nil {
			charge = product(packages, at[billing.StepPackagePrice])
		} else {
			charge.Set(at[billing.StepUnitCharges])
		}
		if per := at[billing.StepPerUnits]; per != nil {
			charge.Quo(charge, per)
		}
		for _, fees := range []string{billing.StepFlatFees, billing.StepFixedFees} {
			if at[fees] != nil {
				charge.Add(charge, at[fees])
			}
		}
		return charge
	}
	return sum
}

// lines recomputes the lines of a provider's price, each rounded half up, and returns their sum.
func (w workings) lines(l *life, s billing.Step) *big.Rat {
	sum := new(big.Rat)
	for _, line := range s.Of {
		w.seen[line.Name]++
		if len(line.Of) > 0 {
			smallest := big.NewRat(1, 100)
			if s.Unit == "JPY" {
				smallest = big.NewRat(1, 1)
			}
			exact := new(big.Rat).Mul(rational(line.Of[0].Amount), rational(line.Of[1].Amount))
			want := new(big.Rat)
			if exact.Sign() > 0 {
				want.Mul(halfUp(exact.Quo(exact, smallest)), smallest)
			}
			if want.Cmp(rational(line.Amount)) != 0 {
				l.failf("a line of the provider's price is %s instead of %s", line.Amount, want.FloatString(4))
			}
		}
		sum.Add(sum, rational(line.Amount))
	}
	return sum
}

// sum adds up the amounts of the parts of a step, and checks that each part names its series.
func (w workings) sum(l *life, parts []billing.Step) *big.Rat {
	sum := new(big.Rat)
	for _, p := range parts {
		w.seen[p.Name]++
		if p.Series == nil && p.Name != billing.StepDimension {
			l.failf("it is not said where %s was billed", p.Amount)
		}
		sum.Add(sum, rational(p.Amount))
	}
	return sum
}

// text formats each step of a breakdown as its name, amount and unit.
func text(steps []billing.Step) (lines []string) {
	for _, s := range steps {
		lines = append(lines, fmt.Sprintf("%s %s %s", s.Name, s.Amount, s.Unit))
	}
	return lines
}

// The tenant replaced a connection that had been reported some of February's usage. January closed at 100 calls, and 11
// calls arrived late. The base price of 10 USD includes 100 calls.
func TestLineBreakdownShowsEachStep(t *testing.T) {
	t.Parallel()
	january, february := span(t, "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"), span(t, "2026-02-01T00:00:00Z", "2026-03-01T00:00:00Z")
	closedAt := february.Start
	taken := billing.Sums{
		Any: true, Value: decimal(t, "102.02"), Added: decimal(t, "102.02"), Quantity: decimal(t, "102.02"), Amount: decimal(t, "10.01"), Currency: "USD",
	}
	former := billing.Series{Kind: billing.StatementReport, Connection: first, Counting: billing.Replaces, Period: february.Start, Window: february}
	terms := billing.Terms{BasePrice: decimal(t, "10"), IncludedUnits: decimal(t, "100"), OverageRate: decimal(t, "0.005"), Currency: "USD"}
	facts := billing.Facts{
		Now: instant(t, "2026-02-10T00:00:00Z"), Customer: billing.Customer{CreatedAt: january.Start},
		Settings:   billing.Settings{Timezone: location(t, "UTC"), Currency: "USD", LatePolicy: metering.AdjustLate},
		Meters:     []metering.Meter{{ID: 1, Slug: "calls", UsageScale: 1, Version: metering.MeterVersion{ID: 7, Status: metering.Complete}}},
		Connection: &billing.Connection{ID: second, Statements: true},
		Prices:     map[metering.MeterID][]billing.Price{1: {{MeterID: 1, Version: 3, Terms: terms}}},
		Stored: []billing.Period{
			{ID: 1, Range: january, ClosedAt: &closedAt, Complete: true, Closed: []billing.ClosedLine{{
				MeterID: 1, Usage: decimal(t, "100"), Events: 1, PriceVersion: 3, Terms: terms, Charge: decimal(t, "10"), Currency: "USD", Billed: true,
			}}},
			{ID: 2, Range: february},
		},
		LateMonths: []metering.Range{january},
		Usage: []billing.Usage{
			{Period: january.Start, MeterID: 1, Total: decimal(t, "111"), Events: 2, Late: decimal(t, "11"), LateEvents: 1},
			{Period: february.Start, MeterID: 1, Total: decimal(t, "342.27"), Events: 5},
		},
		Reported: []billing.Reported{{
			Series: former, MeterID: 1, Taken: taken, Standing: taken, Number: 1, State: billing.Accepted,
		}},
	}
	charged := []string{
		"included_units 100 units", "overage_units 242.27 units", "overage_rate 0.005 USD", "overage_charge 1.21135 USD", "base_price 10 USD",
		"exact_charge 11.21135 USD", "charge 11.21 USD",
	}
	stated := billing.NewBooks(facts).StatementOf(billing.Periods(facts)[1]).Lines[0]
	require.Equal(t, slices.Concat([]string{"usage 342.27 units"}, charged, []string{
		"elsewhere_units 102.02 units", "billed_elsewhere 10.01 USD", "quantity 240.25 units", "amount 1.2 USD",
		"adjustment 0.06 USD", "amount_with_adjustments 1.26 USD",
	}), text(stated.Working))
	require.Equal(t, metering.MeterVersionID(7), stated.Working[0].MeterVersion)
	require.Equal(t, int64(5), stated.Working[0].Events)
	require.Equal(t, 3, stepNamed(stated.Working, billing.StepRate).PriceVersion)
	require.Equal(t, former, *stepNamed(stated.Working, billing.StepOther).Of[0].Series)
	adjustment := stepNamed(stated.Working, billing.StepAdjustment)
	require.Equal(t, january, *adjustment.Closed)
	require.Equal(t, billing.ReasonLate, adjustment.Reason)
	require.Equal(t, []string{
		"usage 100 units", "late_usage 11 units", "total_usage 111 units",
		"included_units 100 units", "overage_units 11 units", "overage_rate 0.005 USD", "overage_charge 0.055 USD", "base_price 10 USD",
		"exact_charge 10.055 USD", "charge 10.06 USD", "closed_units 100 units", "closed_charge 10 USD", "quantity 11 units", "amount 0.06 USD",
	}, text(adjustment.Of))
	require.Equal(t, "1.26", stated.Amount.String())
	preview := billing.NewBooks(facts).Preview()
	require.Equal(t, "11.21135", preview[0].Amount.String())
	require.Equal(t, "0.06", preview[1].Amount.String())
	open := billing.OpenPeriods(facts)
	charges := billing.OpenCharges(facts, open[len(open)-1])
	require.Equal(t, stepNamed(stated.Working, billing.StepCharge).Amount.String(), charges[0].Charge.String())

	// A destination that takes tenths of a unit charges for tenths, and so does the statement.
	facts.Connection = &billing.Connection{ID: second}
	facts.Side = &billing.Side{
		Customer: "cus_1", Subscription: "sub_1", Period: february,
		Destinations: []billing.Destination{{MeterID: 1, Target: "calls", Method: "delta", Counting: billing.Adds}},
	}
	facts.Now = instant(t, "2026-02-20T00:00:00Z")
	stated = billing.NewBooks(facts).StatementOf(billing.Periods(facts)[1]).Lines[0]
	require.Equal(t, []string{
		"usage 342.27 units", "reported_units 342.3 units",
		"included_units 100 units", "overage_units 242.3 units", "overage_rate 0.005 USD", "overage_charge 1.2115 USD", "base_price 10 USD",
		"exact_charge 11.2115 USD", "charge 11.21 USD", "elsewhere_units 102 units", "billed_elsewhere 10.01 USD",
		"quantity 240.3 units", "amount 1.2 USD", "adjustment 0.06 USD", "amount_with_adjustments 1.26 USD",
	}, text(stated.Working))
	require.Equal(t, "11.2115", billing.NewBooks(facts).Preview()[0].Amount.String())
}

// The breakdown of a closed line shows the units and the charge that final invoices lack.
func TestClosedLineBreakdownShowsUnbilledUnitsAndCharge(t *testing.T) {
	t.Parallel()
	closed := closedAt(january, "10", "1000")
	billedWith(&closed, "7")
	f := atMeters(february, knownOf(february.Start.AddDate(0, 0, 5), closed, subscribed(february)))
	require.Equal(t, []string{"unbilled_units 3 units", "unbilled_charge 300 USD", "quantity 7 units", "amount 700 USD"},
		text(billing.NewBooks(f).Explain(closed, 1))[9:])
}
