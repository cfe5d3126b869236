package billing

import (
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// HoldCode is why an invoice is not released, or how it became final.
type HoldCode string

const (
	HoldNotCounted     HoldCode = "not_counted"     // the provider has counted something else than it has accepted
	HoldOnItsWay       HoldCode = "on_its_way"      // a report's outcome is not known
	HoldSyncOpen       HoldCode = "sync_open"       // the customer is being synced
	HoldSyncFailed     HoldCode = "sync_failed"     // the customer's usage could not be reported
	HoldExcluded       HoldCode = "excluded"        // a meter on the invoice was not reported
	HoldNoLine         HoldCode = "no_line"         // what a meter has used is on no line
	HoldPriceDiffers   HoldCode = "price_differs"   // the provider charges another price than ours
	HoldChargeDiffers  HoldCode = "charge_differs"  // a line says another amount than the report that made it
	HoldUnknownCharge  HoldCode = "unknown_charge"  // a line names a report that the provider has not accepted from here
	HoldChanged        HoldCode = "changed"         // somebody has changed the draft
	HoldRescheduled    HoldCode = "rescheduled"     // somebody has changed when it becomes final
	HoldNotAutomatic   HoldCode = "not_automatic"   // it waits for people
	HoldInvoiceGone    HoldCode = "invoice_gone"    // somebody has deleted it
	HoldNotTaken       HoldCode = "not_taken"       // the provider has refused the hold
	HoldNotReleased    HoldCode = "not_released"    // the provider has refused to make it final
	HoldTooLate        HoldCode = "too_late"        // its deadline was over when it was seen
	HoldDeadlinePassed HoldCode = "deadline_passed" // nobody released it until then
	HoldFinalizedThere HoldCode = "finalized_there" // somebody finalized it at the provider, or it did so by itself

	HoldConnectionReplaced HoldCode = "connection_replaced" // the tenant has another provider
)

// Values are all codes.
func (HoldCode) Values() []HoldCode {
	return []HoldCode{
		HoldNotCounted, HoldOnItsWay, HoldSyncOpen, HoldSyncFailed, HoldExcluded, HoldNoLine, HoldPriceDiffers, HoldChargeDiffers, HoldUnknownCharge, HoldChanged,
		HoldRescheduled, HoldNotAutomatic, HoldInvoiceGone, HoldNotTaken, HoldNotReleased, HoldTooLate, HoldDeadlinePassed, HoldFinalizedThere, HoldConnectionReplaced,
	}
}

// HoldReason is one thing that was found.
type HoldReason struct {
	Code     HoldCode          `json:"code"`
	MeterID  metering.MeterID  `json:"meter_id,omitempty"`
	Ours     *metering.Decimal `json:"ours,omitempty"`     // units, or money
	Theirs   *metering.Decimal `json:"theirs,omitempty"`   // units, or money
	Response string            `json:"response,omitempty"` // of the provider, without its words
}

func reasons(codes ...HoldCode) (all []HoldReason) {
	for _, code := range codes {
		if code != "" {
			all = append(all, HoldReason{Code: code})
		}
	}
	return all
}

func differs(code HoldCode, meter metering.MeterID, ours, theirs metering.Decimal) HoldReason {
	return HoldReason{Code: code, MeterID: meter, Ours: &ours, Theirs: &theirs}
}

// Sentence says it to people. meter is what they call the meter.
func (r HoldReason) Sentence(meter string) string {
	switch r.Code {
	case HoldNotCounted:
		return fmt.Sprintf("%s: the provider has accepted %s units and has counted %s", meter, r.Ours, r.Theirs)
	case HoldOnItsWay:
		return meter + ": a report is being sent, or its outcome is unknown"
	case HoldExcluded:
		return meter + ": the invoice bills the meter, but the meter's usage could not be reported"
	case HoldNoLine:
		return fmt.Sprintf("%s: no line of the invoice bills the %s units that were reported", meter, r.Ours)
	case HoldPriceDiffers:
		return fmt.Sprintf("%s: the provider charges %s per unit, which is not the meter's price in Odometer", meter, r.Theirs)
	case HoldChargeDiffers:
		return fmt.Sprintf("a line charges %s, but the reported amount is %s", r.Theirs, r.Ours)
	case HoldNotTaken:
		return "the invoice is not held: " + r.Response
	case HoldNotReleased:
		return "the invoice could not be released: " + r.Response
	}
	return holdSentences[r.Code]
}

var holdSentences = map[HoldCode]string{
	HoldSyncOpen:       "the customer is being synced",
	HoldSyncFailed:     "the customer's sync has failed; it is retried automatically",
	HoldUnknownCharge:  "a line refers to a report that the ledger does not record as accepted",
	HoldChanged:        "the draft was changed at the provider; finalize it there",
	HoldRescheduled:    "the time at which the draft becomes final was changed at the provider; Odometer no longer changes it",
	HoldNotAutomatic:   "the provider does not finalize the draft automatically; finalize it there",
	HoldInvoiceGone:    "the draft no longer exists at the provider",
	HoldTooLate:        "the invoice is not held: its deadline was over when Odometer read it",
	HoldDeadlinePassed: "the invoice became final at its deadline",
	HoldFinalizedThere: "the invoice was finalized at the provider before it was released",

	HoldConnectionReplaced: "the billing provider was replaced; the invoice becomes final at its deadline",
}

// changed says whether people have taken the draft over.
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

// linesChanged says whether another line than one of metered usage is not as it
// was. A charge of ours may have come since, or have been set to another amount:
// that is compared with what it was set to.
func (f HoldFacts) linesChanged() bool {
	for _, l := range f.Before.Lines {
		same := func(o DraftLine) bool {
			ours := l.ReportID != nil && o.ReportID != nil
			return o.ID == l.ID && !o.Metered && (ours || o.Price == l.Price && o.Quantity.Equal(l.Quantity) && o.Amount.Equal(l.Amount))
		}
		if !l.Metered && !slices.ContainsFunc(f.Draft.Lines, same) {
			return true
		}
	}
	for _, l := range f.Draft.Lines {
		known := func(o DraftLine) bool { return o.ID == l.ID }
		if !l.Metered && l.ReportID == nil && !slices.ContainsFunc(f.Before.Lines, known) {
			return true
		}
	}
	return false
}

// usageLine is what a draft's lines say of an item's usage.
type usageLine struct{ item, price string }

type usageLines struct {
	meter            metering.MeterID
	quantity, amount metering.Decimal
}

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

// usageChanged says whether a metered line is not what the provider has made of
// it: it shows the units of some earlier moment, and has them anew only when
// more, or less, is counted.
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
		case !f.between(is, was.quantity):
			return true
		}
	}
	return false
}

// between says whether a meter's units may have been counted between then and
// now. Nobody can tell of what is not ours, or was not read.
func (f HoldFacts) between(is usageLines, was metering.Decimal) bool {
	counted, known := metering.Decimal{}, false
	for _, p := range f.Places {
		if p.MeterID == is.meter {
			counted, known = counted.Add(p.Counted), true
		}
	}
	return !known || is.quantity.Cmp(smaller(was, counted)) >= 0 && is.quantity.Cmp(larger(was, counted)) <= 0
}

// missing is what may come by itself.
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

// disagreements is what does not come right by itself.
func (f HoldFacts) disagreements() (all []HoldReason) {
	for _, p := range f.Places {
		if !p.Reported.IsZero() && !f.Draft.bills(p.MeterID) {
			all = append(all, HoldReason{Code: HoldNoLine, MeterID: p.MeterID, Ours: &p.Reported})
		}
	}
	for _, l := range f.Lines {
		if !l.Amount.IsZero() && !f.Draft.has(l.ReportID) {
			all = append(all, HoldReason{Code: HoldNoLine, MeterID: l.MeterID, Ours: &l.Amount})
		}
	}
	for _, e := range f.Sync.Excluded {
		if (f.Draft.bills(e.MeterID) || f.sets(e.MeterID)) && !slices.Contains(afterTheBorder, e.Reason) {
			all = append(all, HoldReason{Code: HoldExcluded, MeterID: e.MeterID})
		}
	}
	for i, l := range f.Draft.Lines {
		told := slices.ContainsFunc(f.Draft.Lines[:i], func(o DraftLine) bool { return o.MeterID == l.MeterID })
		if l.Metered && l.UnitPrice != nil && !told && f.otherPrice(l) {
			all = append(all, HoldReason{Code: HoldPriceDiffers, MeterID: l.MeterID, Theirs: l.UnitPrice})
		}
		if l.ReportID != nil {
			all = append(all, f.chargeOf(*l.ReportID, l.Amount)...)
		}
	}
	return all
}

// afterTheBorder are the reasons for which a meter that is on the invoice is
// not reported any more once its period is over.
var afterTheBorder = []string{
	ExcludedOver, ExcludedWindow, ExcludedInvoiced, ExcludedEarlier, ExcludedCurrency, ExcludedOnInvoice, ExcludedNoLine, ExcludedLines,
}

func (d Draft) bills(meter metering.MeterID) bool {
	return slices.ContainsFunc(d.Lines, func(l DraftLine) bool { return l.MeterID == meter })
}

// has says whether a line of the draft is as the report has set it last.
func (d Draft) has(report uuid.UUID) bool {
	return slices.ContainsFunc(d.Lines, func(l DraftLine) bool { return l.ReportID != nil && *l.ReportID == report })
}

func (f HoldFacts) sets(meter metering.MeterID) bool {
	return slices.ContainsFunc(f.Lines, func(l HeldLine) bool { return l.MeterID == meter })
}

// TermsIn are our terms of the meters in the period that an invoice is for.
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

// otherPrice says whether units of which each costs the same cost something
// else by our price.
func (f HoldFacts) otherPrice(l DraftLine) bool {
	return slices.ContainsFunc(f.Places, func(p HeldPlace) bool {
		if p.MeterID != l.MeterID || p.Terms == nil {
			return false
		}
		rate, same := p.Terms.PerUnit()
		return !same || !rate.Equal(*l.UnitPrice) || p.Terms.Currency != f.Draft.Currency
	})
}

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
