package billing

import (
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Caveat goes with every revenue figure.
const Caveat = "Estimates: invoiced amounts may differ because of proration, discounts or credits at the provider."

// Statement is a billing period with what it came to so far, or, once it is
// closed, what it came to and what has arrived since.
type Statement struct {
	Period
	ClosesAt time.Time
	Lines    []StatementLine
}

// StatementLine is one meter of a statement.
type StatementLine struct {
	MeterID      metering.MeterID
	MeterSlug    string
	Usage        metering.Decimal // of a closed period: what it was closed at
	Events       int64
	Charge       metering.Decimal // rounded to the currency's minor unit
	Currency     string
	PriceVersion int              // 0: none
	Billed       bool             // the provider was reported it
	LateUsage    metering.Decimal // what arrived once it was closed
	LateCharge   metering.Decimal // what the charge would grow by
	Working      []Step           // of the charge
}

// StatementOf is what one of the periods of ExpectedPeriods comes to.
func StatementOf(f Facts, period Period) Statement {
	s := Statement{Period: period, ClosesAt: period.Deadline(f.Settings.Grace)}
	if period.ClosedAt == nil {
		lines, _ := f.charges(period)
		for _, l := range lines {
			price, _ := f.price(l.MeterID, period)
			s.Lines = append(s.Lines, StatementLine{
				MeterID: l.MeterID, MeterSlug: l.MeterSlug, Usage: l.Usage, Events: l.Events, Charge: l.Charge, Currency: l.Currency,
				PriceVersion: l.PriceVersion, Working: Explain(price, l.Usage, l.Currency),
			})
		}
		return s
	}
	for _, m := range f.Meters {
		then, known := period.line(m.ID)
		if !known {
			continue // the meter was made later
		}
		late, _ := f.late(period, then)
		billable := then.Usage
		if then.Reported != nil {
			billable = *then.Reported
		}
		s.Lines = append(s.Lines, StatementLine{
			MeterID: m.ID, MeterSlug: m.Slug, Usage: then.Usage, Events: then.Events, Charge: then.Charge, Currency: then.Currency,
			PriceVersion: then.PriceVersion, Billed: then.Billed, LateUsage: late, LateCharge: f.adjustment(period, m, then, elsewhere{}).Amount,
			Working: Explain(priceVersion(f.Prices[m.ID], then.PriceVersion), billable, then.Currency),
		})
	}
	return s
}
