package billing

import (
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// HoldCode is the reason why an invoice is not released, or how it became final.
type HoldCode string

const (
	HoldNotCounted         HoldCode = "not_counted"
	HoldOnItsWay           HoldCode = "on_its_way"
	HoldSyncOpen           HoldCode = "sync_open"
	HoldSyncFailed         HoldCode = "sync_failed"
	HoldExcluded           HoldCode = "excluded"
	HoldNoLine             HoldCode = "no_line"
	HoldPriceDiffers       HoldCode = "price_differs"
	HoldChargeDiffers      HoldCode = "charge_differs"
	HoldUnknownCharge      HoldCode = "unknown_charge"
	HoldChanged            HoldCode = "changed"
	HoldRescheduled        HoldCode = "rescheduled"
	HoldNotAutomatic       HoldCode = "not_automatic"
	HoldInvoiceGone        HoldCode = "invoice_gone"
	HoldNotTaken           HoldCode = "not_taken"
	HoldNotReleased        HoldCode = "not_released"
	HoldTooLate            HoldCode = "too_late"
	HoldDeadlinePassed     HoldCode = "deadline_passed"
	HoldFinalizedThere     HoldCode = "finalized_there"
	HoldConnectionReplaced HoldCode = "connection_replaced"
)

// Values returns all codes.
func (HoldCode) Values() []HoldCode { return holdReasons.codes() }

// HoldReason is one finding about a held invoice.
type HoldReason struct {
	Code     HoldCode          `json:"code"`
	MeterID  metering.MeterID  `json:"meter_id,omitempty"`
	Ours     *metering.Decimal `json:"ours,omitempty"`     // reported units or money
	Theirs   *metering.Decimal `json:"theirs,omitempty"`   // units or money at the provider
	Response string            `json:"response,omitempty"` // of the provider, without its message text
}

// reasons returns a reason for each code, except "".
func reasons(codes ...HoldCode) (all []HoldReason) {
	for _, code := range codes {
		if code != "" {
			all = append(all, HoldReason{Code: code})
		}
	}
	return all
}

// differs returns the reason for two figures that differ: Odometer's and the provider's.
func differs(code HoldCode, meter metering.MeterID, ours, theirs metering.Decimal) HoldReason {
	return HoldReason{Code: code, MeterID: meter, Ours: &ours, Theirs: &theirs}
}

// Text returns the reason in words, for operators. meter is the meter's name in the message.
func (r HoldReason) Text(meter string) Text {
	text := holdReasons.textOf(r.Code)
	text.Message = strings.NewReplacer("{meter}", meter, "{ours}", number(r.Ours), "{theirs}", number(r.Theirs), "{response}", r.Response).Replace(text.Message)
	return text
}

// number returns the decimal as text for messages.
func number(d *metering.Decimal) string {
	if d == nil {
		return "an unknown number"
	}
	return d.String()
}

// changed returns the code of a user's change to the draft, or of a draft that is not finalized automatically. It
// returns "" if there is neither. The finalization time is compared only if the draft is held.
func (f HoldFacts) changed(held bool) HoldCode {
	switch {
	case !f.Draft.Automatic:
		return HoldNotAutomatic
	case held && !f.Draft.FinalizesAt.Equal(f.Deadline):
		return HoldRescheduled
	case f.Draft.Settings != f.Before.Settings, f.Draft.Currency != f.Before.Currency, f.linesChanged(), f.usageChanged():
		return HoldChanged
	}
	return ""
}

// linesChanged reports whether a user changed, added or removed a line that does not bill metered usage. A report may
// add a line or set a line to another amount. disagreements compares such amounts with the reports.
func (f HoldFacts) linesChanged() bool {
	changed := func(was DraftLine) bool {
		return !was.Metered && !slices.ContainsFunc(f.Draft.Lines, was.isUnchangedIn)
	}
	added := func(l DraftLine) bool {
		known := func(o DraftLine) bool { return o.ID == l.ID }
		return !l.Metered && l.ReportID == nil && !slices.ContainsFunc(f.Before.Lines, known)
	}
	return slices.ContainsFunc(f.Before.Lines, changed) || slices.ContainsFunc(f.Draft.Lines, added)
}

// isUnchangedIn reports whether a line of a later draft is the same line, and no user changed it. If reports set the
// line in both drafts, its price, quantity and amount may differ.
func (l DraftLine) isUnchangedIn(later DraftLine) bool {
	ours := l.ReportID != nil && later.ReportID != nil
	return later.ID == l.ID && !later.Metered && (ours || later.Price == l.Price && later.Quantity.Equal(l.Quantity) && later.Amount.Equal(l.Amount))
}

// usageLine identifies the metered lines of a subscription item at one price.
type usageLine struct{ item, price string }

// usageLines holds the total of the metered lines of a usageLine.
type usageLines struct {
	meter            metering.MeterID
	quantity, amount metering.Decimal
}

// usage returns the totals of the metered lines, by subscription item and price.
func (d Draft) usage() map[usageLine]usageLines {
	all := map[usageLine]usageLines{}
	for _, l := range d.Lines {
		if !l.Metered {
			continue
		}
		key := usageLine{l.Item, l.Price}
		sum := all[key]
		all[key] = usageLines{l.MeterID, sum.quantity.Add(l.Quantity), sum.amount.Add(l.Amount)}
	}
	return all
}

// usageChanged reports whether a user changed a metered line. Such a line shows the units of an earlier moment. The
// provider updates the units and the amount only when its count changes.
func (f HoldFacts) usageChanged() bool {
	before, now := f.Before.usage(), f.Draft.usage()
	if len(before) != len(now) {
		return true
	}
	for key, was := range before {
		is, there := now[key]
		switch {
		case !there:
			return true
		case is.quantity.Equal(was.quantity):
			if !is.amount.Equal(was.amount) {
				return true
			}
		case !f.isWithinCount(is, was.quantity):
			return true
		}
	}
	return false
}

// isWithinCount reports whether the line's units lie between the previous units and the provider's current count. It
// returns true if the count is unknown: the meter is not ours, or the counts were not read.
func (f HoldFacts) isWithinCount(is usageLines, was metering.Decimal) bool {
	counted, known := metering.Decimal{}, false
	for _, p := range f.Places {
		if p.MeterID == is.meter {
			counted, known = counted.Add(p.Counted), true
		}
	}
	return !known || is.quantity.Cmp(smaller(was, counted)) >= 0 && is.quantity.Cmp(larger(was, counted)) <= 0
}

// missing returns the reasons that can disappear without an operator: the sync, outstanding reports and delayed
// counts.
func (f HoldFacts) missing() (all []HoldReason) {
	switch f.Sync.Status {
	case metering.SyncSucceeded:
	case metering.SyncFailed:
		all = append(all, HoldReason{Code: HoldSyncFailed})
	default:
		all = append(all, HoldReason{Code: HoldSyncOpen})
	}
	for _, p := range f.Places {
		switch {
		case p.Outstanding:
			all = append(all, HoldReason{Code: HoldOnItsWay, MeterID: p.MeterID})
		case !p.Counted.Equal(p.Reported):
			all = append(all, differs(HoldNotCounted, p.MeterID, p.Reported, p.Counted))
		}
	}
	for _, l := range f.Lines {
		if l.Outstanding {
			all = append(all, HoldReason{Code: HoldOnItsWay, MeterID: l.MeterID})
		}
	}
	return all
}

// disagreements returns the reasons that do not disappear without an operator.
func (f HoldFacts) disagreements() []HoldReason {
	all := f.missingLines()
	for _, e := range f.Sync.Excluded {
		if (f.Draft.bills(e.MeterID) || f.isSet(e.MeterID)) && !slices.Contains(expectedAfterEnd, e.Code) {
			all = append(all, HoldReason{Code: HoldExcluded, MeterID: e.MeterID})
		}
	}
	for i, l := range f.Draft.Lines {
		repeated := slices.ContainsFunc(f.Draft.Lines[:i], func(o DraftLine) bool { return o.MeterID == l.MeterID })
		if l.Metered && l.UnitPrice != nil && !repeated && f.otherPrice(l) {
			all = append(all, HoldReason{Code: HoldPriceDiffers, MeterID: l.MeterID, Theirs: l.UnitPrice})
		}
		if l.ReportID != nil {
			all = append(all, f.chargeOf(*l.ReportID, l.Amount)...)
		}
	}
	return all
}

// missingLines returns a reason for each reported quantity and amount that no line of the draft bills.
func (f HoldFacts) missingLines() (all []HoldReason) {
	for _, p := range f.Places {
		if !p.Reported.IsZero() && !f.Draft.bills(p.MeterID) {
			all = append(all, HoldReason{Code: HoldNoLine, MeterID: p.MeterID, Ours: &p.Reported})
		}
	}
	for _, l := range f.Lines {
		if !l.Amount.IsZero() && !f.Draft.hasLineOf(l.ReportID) {
			all = append(all, HoldReason{Code: HoldNoLine, MeterID: l.MeterID, Ours: &l.Amount})
		}
	}
	return all
}

// expectedAfterEnd lists the reasons why a meter is no longer reported after the end of its period. These reasons are
// expected, so a hold does not treat them as a difference.
var expectedAfterEnd = []ExclusionCode{
	ExcludedPeriodOver, ExcludedNoWindow, ExcludedInvoiceFinal, ExcludedBeforeSubscription, ExcludedLateCurrency, ExcludedLineFinal, ExcludedNoInvoiceLine, ExcludedTooManyLines,
}

// bills reports whether a line of the draft bills the meter.
func (d Draft) bills(meter metering.MeterID) bool {
	return slices.ContainsFunc(d.Lines, func(l DraftLine) bool { return l.MeterID == meter })
}

// hasLineOf reports whether a line of the draft was last set by the report.
func (d Draft) hasLineOf(report uuid.UUID) bool {
	return slices.ContainsFunc(d.Lines, func(l DraftLine) bool { return l.ReportID != nil && *l.ReportID == report })
}

// isSet reports whether reports set an invoice line of the meter.
func (f HoldFacts) isSet(meter metering.MeterID) bool {
	return slices.ContainsFunc(f.Lines, func(l HeldLine) bool { return l.MeterID == meter })
}

// TermsIn returns our price terms by meter, for the stored periods that overlap the invoice's period. If a meter has a
// price in several of them, its terms are those of the last one. TermsIn omits meters without a price.
func (f Facts) TermsIn(invoice metering.Range) map[metering.MeterID]*Terms {
	all := make(map[metering.MeterID]*Terms)
	for _, p := range f.Stored {
		if p.Intersect(invoice).Empty() {
			continue
		}
		for _, m := range f.metersIn(p) {
			if price, priced := f.price(m.ID, p); priced {
				all[m.ID] = &price.Terms
			}
		}
	}
	return all
}

// otherPrice reports whether our price differs from the line's unit price: in the amount, in the currency, or because
// our units have no common price.
func (f HoldFacts) otherPrice(l DraftLine) bool {
	return slices.ContainsFunc(f.Places, func(p HeldPlace) bool {
		if p.MeterID != l.MeterID || p.Terms == nil {
			return false
		}
		rate, same := p.Terms.PerUnit()
		return !same || !rate.Equal(*l.UnitPrice) || p.Terms.Currency != f.Draft.Currency
	})
}

// chargeOf compares the amount of a draft's line with the charge report that set the line. It returns a reason if the
// report is unknown or has another amount, else nil.
func (f HoldFacts) chargeOf(report uuid.UUID, amount metering.Decimal) []HoldReason {
	reported, known := f.Charges[report]
	switch {
	case !known:
		return reasons(HoldUnknownCharge)
	case !reported.Equal(amount):
		return []HoldReason{differs(HoldChargeDiffers, 0, reported, amount)}
	}
	return nil
}
