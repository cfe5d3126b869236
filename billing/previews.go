package billing

import (
	"cmp"
	"slices"

	"github.com/odometer-metering/odometer/metering"
)

// PreviewLine is what one meter of the running period would be charged if it
// ended now, or what late usage adds to a closed one.
type PreviewLine struct {
	MeterID   metering.MeterID
	MeterSlug string
	Usage     metering.Decimal
	UnitPrice metering.Decimal // the overage rate; 0 where the meter has no price; of a provider's price, the rate of the last tier that the usage reaches
	Amount    metering.Decimal // the exact charge, and a provider's as it rounds it; of late usage in the currency's minor unit
	Currency  string
	Source    PriceSource      // of our price; "": there is none
	Price     ProviderPrice    // that is charged instead of ours; nil: ours is
	Differs   *PriceDifference // ours is another one
	Excluded  string           // why it is not reported; ExcludedBackfilling: the figures are not to be used
	LateFor   *metering.Range  // the closed period; nil: it is of the running one
	Working   []Step           // the amount's, and on to what the provider is reported
}

// PreviewAll is the Preview of all of a customer's streams: meter by meter, and
// then what late usage adds.
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

// Preview is the bill of CurrentPeriod as if that ended now, meter by meter,
// and then what late usage adds to closed periods.
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
	for _, c := range b.carried() {
		l := c.line()
		lines = append(lines, PreviewLine{
			MeterID: l.MeterID, MeterSlug: l.MeterSlug, Usage: l.Quantity, UnitPrice: l.UnitPrice, Amount: l.Amount, Currency: l.Currency, Source: c.source(), Price: l.Price,
			Excluded: b.excludedLate(c.currency, open), LateFor: &metering.Range{Start: c.late.closed.Start.UTC(), End: c.late.closed.End.UTC()}, Working: c.steps(),
		})
	}
	return lines
}

// difference is how our price of the meter in the period differs from the
// provider's, where that is charged instead.
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

// running is the period of CurrentPeriod.
func (f *Facts) running() Period {
	for _, p := range ExpectedPeriods(*f) {
		if p.Contains(f.Now) {
			return p
		}
	}
	return Period{Range: CurrentPeriod(*f)}
}

// excluded says why the meter is not reported, as far as that is known without
// planning.
func (f *Facts) excluded(m metering.Meter, period Period) string {
	if m.Version.Status == metering.Backfilling {
		return ExcludedBackfilling
	}
	if f.Side == nil {
		return ""
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
	return ""
}
