package billing

import (
	"github.com/odometer-metering/odometer/metering"
)

// amountDiffers reports whether invoices that bill the right units of a closed line bill an amount other than the
// provider's price of these units. It returns false if the invoices also bill other periods, or at other prices: the
// amount of the line is then unknown.
func (b *Books) amountDiffers(p Period, l *ClosedLine, r Reconciliation, invoices []invoiced) bool {
	lines, alone := b.linesOfOne(p, l, invoices)
	if l.Price == nil || !alone || !r.Elsewhere.IsZero() {
		return false
	}
	var units, amount metering.Decimal
	rounded := int64(0)
	for _, line := range lines {
		if line.Price != l.Price.ID() || line.Currency != l.Currency {
			return false
		}
		units, amount, rounded = units.Add(line.Quantity), amount.Add(line.Amount), rounded+int64(line.Lines)
	}
	if !units.Equal(r.Invoiced) {
		return false
	}
	want := l.chargeFor(r.Invoiced)
	if l.Trial {
		want = metering.Decimal{}
	}
	return absolute(amount.Sub(want)).Cmp(halfUnits(rounded, l.Currency)) > 0
}

// linesOfOne returns the lines of a closed line's meter on the final invoices of p's subscription period. alone is true
// if there are such lines, these invoices bill the meter's usage of no other period, and no invoices of another
// subscription period overlap p.
func (f *Facts) linesOfOne(p Period, l *ClosedLine, invoices []invoiced) (lines []InvoiceLine, alone bool) {
	for _, i := range invoices {
		if i.Period.Intersect(p.Range).Empty() {
			continue
		}
		others := containsAny(f.Reported, func(r *Reported) bool {
			return r.MeterID == l.MeterID && f.isOn(i.Invoice, r) && !r.about(p)
		})
		if alone || others || i.Subscription != p.Subscription.ID || !i.Period.Start.Equal(p.Subscription.Start) {
			return nil, false
		}
		alone = true
		for _, line := range i.lines {
			if line.MeterID == l.MeterID {
				lines = append(lines, line)
			}
		}
	}
	return lines, alone && len(lines) > 0
}

// halfUnits returns n halves of the currency's minor unit. The sum of n invoice lines may differ from the expected
// amount by up to this much, because the provider rounds each line separately.
func halfUnits(n int64, currency string) metering.Decimal {
	half := metering.MustDecimal("0.5")
	for range metering.MinorDigits(currency) {
		half = half.Mul(metering.MustDecimal("0.1"))
	}
	return metering.Whole(n).Mul(half)
}

// absolute returns the decimal without its sign.
func absolute(d metering.Decimal) metering.Decimal { return larger(d, negative(d)) }
