package billing

import (
	"cmp"
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// PreviewLine is the charge of one meter if the current period ended now, or the amount that late usage adds to a
// closed period.
type PreviewLine struct {
	MeterID   metering.MeterID
	MeterSlug string
	Usage     metering.Decimal
	UnitPrice metering.Decimal // overage rate; with another model or a provider's price, the rate of the last unit or package; 0 without a price
	Amount    metering.Decimal // unrounded charge; at a provider's price, as the provider rounds it; of late usage, rounded to the currency's minor unit
	Currency  string
	Source    PriceSource      // level at which the price in Odometer is set; "": no such price is charged
	Price     ProviderPrice    // provider's own price, if it is charged instead; else nil
	Differs   *PriceDifference // difference between the price in Odometer and Price; nil: none
	Excluded  ExclusionReason  // why the meter is not reported; with ExcludedBackfilling, the figures are not set
	LateFor   *metering.Range  // closed period of the late usage; nil: the line is of the current period
	Working   []Step           // breakdown of Amount, continued to the amount that is reported to the provider
}

// PreviewAll returns the Preview lines of all of a customer's billing schedules: first the lines of current periods,
// ordered by meter, then the lines of late usage.
func PreviewAll(schedules []*Books) (lines []PreviewLine) {
	for _, b := range schedules {
		lines = append(lines, b.Preview()...)
	}
	if len(schedules) > 1 {
		now := slices.DeleteFunc(slices.Clone(lines), func(l PreviewLine) bool { return l.LateFor != nil })
		slices.SortStableFunc(now, func(a, b PreviewLine) int { return cmp.Compare(a.MeterID, b.MeterID) })
		late := slices.DeleteFunc(lines, func(l PreviewLine) bool { return l.LateFor == nil })
		return append(now, late...)
	}
	return lines
}

// Preview returns the bill of CurrentPeriod as if that period ended now: a line for each meter, then a line for each
// amount that late usage adds to a closed period.
func (b *Books) Preview() (lines []PreviewLine) {
	period := b.running()
	shown := b.shown(period)
	for _, m := range b.metersIn(period) {
		l := PreviewLine{MeterID: m.ID, MeterSlug: m.Slug, Currency: b.Settings.Currency, Excluded: b.excluded(m, period)}
		if i := slices.IndexFunc(shown, func(c calculation) bool { return c.meter.ID == m.ID }); i >= 0 {
			c := shown[i]
			l.Usage, l.UnitPrice, l.Currency, l.Source, l.Price, l.Working = c.usage, c.unitPrice(), c.currency, c.source(), c.theirs, c.steps()
			if !c.trial {
				l.Amount = c.exact()
			}
			l.Differs = b.difference(m, period, c.theirs)
		}
		lines = append(lines, l)
	}
	open, _ := openPeriod(ExpectedPeriods(b.Facts))
	for _, c := range b.pendingAdjustments() {
		l := c.line()
		lines = append(lines, PreviewLine{
			MeterID: l.MeterID, MeterSlug: l.MeterSlug, Usage: l.Quantity, UnitPrice: l.UnitPrice, Amount: l.Amount, Currency: l.Currency, Source: c.source(), Price: l.Price,
			Excluded: ExclusionReason{Code: b.excludedLate(c.currency, open)}, LateFor: &metering.Range{Start: c.late.closed.Start.UTC(), End: c.late.closed.End.UTC()}, Working: c.steps(),
		})
	}
	return lines
}

// difference compares the meter's price in Odometer with the provider's price. It returns nil if the provider's price
// is not charged, if the meter has no price in Odometer, or if both charge the same.
func (f *Facts) difference(m metering.Meter, period Period, theirs ProviderPrice) *PriceDifference {
	ours, priced := f.price(m.ID, period)
	if theirs == nil || !priced {
		return nil
	}
	if d, differs := DifferenceOf(m, ours.Terms, theirs); differs {
		return &d
	}
	return nil
}

// running returns the billing period that contains Now. If there is none, it returns the calendar period of
// CurrentPeriod.
func (f *Facts) running() Period {
	for _, p := range ExpectedPeriods(*f) {
		if p.Contains(f.Now) {
			return p
		}
	}
	return Period{Range: CurrentPeriod(*f)}
}

// excluded returns the reason why the meter is not reported, as far as it is known without a report plan.
func (f *Facts) excluded(m metering.Meter, period Period) ExclusionReason {
	if m.Version.Status == metering.Backfilling {
		return ExclusionReason{Code: ExcludedBackfilling}
	}
	if f.Side == nil {
		return ExclusionReason{}
	}
	destinations := f.Side.Destinations
	if period.Bills == metering.BillsAmounts {
		destinations = f.Side.Charges
	}
	for _, d := range destinations {
		if d.MeterID == m.ID {
			return d.Excluded
		}
	}
	return ExclusionReason{}
}
