package billing

import "github.com/odometer-metering/odometer/metering"

// PreviewLine is what one meter of the running period would be charged if it
// ended now, or what late usage adds to a closed one.
type PreviewLine struct {
	MeterID   metering.MeterID
	MeterSlug string
	Usage     metering.Decimal
	UnitPrice metering.Decimal // the overage rate; 0 where the meter has no price
	Amount    metering.Decimal // exact; of late usage in the currency's minor unit
	Currency  string
	Excluded  string          // why it is not reported; ExcludedBackfilling: the figures are not to be used
	LateFor   *metering.Range // the closed period; nil: it is of the running one
}

// Preview is the bill of CurrentPeriod as if that ended now, meter by meter,
// and then what late usage adds to closed periods.
func Preview(f Facts) (lines []PreviewLine) {
	current := Period{Range: CurrentPeriod(f)}
	for _, m := range f.Meters {
		usage := f.usage(m.ID, current).Total
		l := PreviewLine{MeterID: m.ID, MeterSlug: m.Slug, Usage: usage, Currency: f.Settings.Currency, Excluded: f.excluded(m)}
		if price, priced := f.price(m.ID, current); priced {
			l.UnitPrice, l.Amount, l.Currency = price.OverageRate, price.Charge(usage), price.Currency
		}
		lines = append(lines, l)
	}
	for _, l := range Adjustments(f) {
		lines = append(lines, PreviewLine{
			MeterID: l.MeterID, MeterSlug: l.MeterSlug, Usage: l.Quantity, UnitPrice: l.UnitPrice, Amount: l.Amount, Currency: l.Currency,
			LateFor: f.closedRange(l),
		})
	}
	return lines
}

// excluded says why the meter is not reported, as far as that is known without
// planning.
func (f Facts) excluded(m metering.Meter) string {
	if m.Version.Status == metering.Backfilling {
		return ExcludedBackfilling
	}
	if f.Side == nil {
		return ""
	}
	for _, d := range f.Side.Destinations {
		if d.MeterID == m.ID {
			return d.Excluded
		}
	}
	return ""
}

// closedRange is the closed period that a line adjusts.
func (f Facts) closedRange(l Line) *metering.Range {
	for _, p := range f.Stored {
		if p.Start.Equal(l.Closed) {
			return &metering.Range{Start: p.Start.UTC(), End: p.End.UTC()}
		}
	}
	return nil
}
