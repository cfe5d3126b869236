package billing_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// trouble is the failure of one call to a provider.
type trouble int

const (
	noTrouble   trouble = iota
	answerLost          // the provider accepted the report, and the answer is lost
	serverError         // the provider did not accept the report
	savedError          // the provider accepted the report, but answers with an error, also to retries under its idempotency key
	refusal             // the provider rejects the report, also if it is sent again
	silentDrop          // the provider accepted the report, but never counts it
)

// farSide simulates a provider: a receiver of statements, or a counter of quantities or charges. It holds the
// provider's true state, which Odometer may not know.
type farSide struct {
	connection metering.ConnectionID
	receiver   bool                                             // a webhook receiver of statements; false: a counter
	moves      int                                              // number of times that a receiver has moved to another URL
	test       bool                                             // in test mode: no customer is charged
	other      *farSide                                         // the same account in the other mode
	latest     map[string]map[billing.PeriodPlace]*storedReport // of a receiver: the statement with the highest number, by customer and period
	contracts  map[string][]*contract                           // by the provider's customer id
	places     map[metering.MeterID]billing.Destination
	beside     map[metering.MeterID]billing.Destination // of second subscriptions
	priceNo    map[metering.MeterID]int                 // number of earlier prices of each meter
	tariffs    map[tariffKey]*tariff                    // prices of items, created at their first use
	calls      []*call
	answers    map[string]savedAnswer // by idempotency key
	lag        time.Duration          // until it shows an accepted quantity as counted
	charging   bool                   // it can bill amounts: a read returns the destinations of charges
	items      []*item
	own        bool       // a customer without a subscription gets standalone invoices
	ours       []*invoice // the standalone invoices
}

// contract is a customer's subscription, with an invoice for each of its periods.
type contract struct {
	id       string
	invoices []*invoice
	ended    bool     // it refuses charges, and accepts usage while its last invoice is a draft
	had      []string // the targets of its items when it ended
	trial    bool     // its first period is a trial
	monthly  bool     // its periods after the first are months
	currency string   // it refuses charges in another currency
}

// invoice is a provider's invoice of one period of a contract, or a standalone invoice.
type invoice struct {
	metering.Range
	final bool
	heard bool // Odometer has read that it is final
	cut   bool // its subscription was canceled within the period
	none  bool // its subscription ended without this invoice

	void, heardVoid bool // of a standalone invoice: it was voided, and Odometer has read that
}

// call is a report that a counter accepted.
type call struct {
	*storedReport
	at      time.Time
	invoice *invoice
	onNone  bool // it arrived after its invoice was final, so no invoice bills it
	lost    bool // no longer on an invoice: its price was swapped, or its subscription ended without an invoice
	dropped bool
	found   bool // Odometer found it in the provider's totals after a restore
	missed  bool // Odometer read the provider's totals after a restore, and they lacked it
	unknown bool // a restore lost its report, and the provider's total is below the ledger's
}

// fromOtherSystem returns a call of another system to the same destination.
func (c *call) fromOtherSystem(now time.Time) *call {
	theirs := *c.storedReport
	theirs.id, theirs.Period, theirs.Quantity = uuid.UUID{}, time.Time{}, metering.Whole(31)
	return &call{storedReport: &theirs, at: now, invoice: c.invoice, onNone: c.invoice.final}
}

// bills reports whether the call's quantity is on an invoice.
func (c *call) bills() bool { return !c.onNone && !c.lost && !c.dropped }

// given reports whether the call arrived before its invoice was final.
func (c *call) given() bool { return !c.onNone }

// known reports whether the call is billed as far as Odometer can know. If Odometer has read the final invoice,
// the call is billed if it is on the invoice. Otherwise an accepted call is treated as billed, unless Odometer
// read the provider's totals after a restore and did not find it.
func (c *call) known() bool {
	if c.invoice.heard {
		return c.bills()
	}
	return c.bills() && !c.unknown || !c.missed && (c.state != billing.Rejected || c.found)
}

// savedAnswer is the answer that a counter gave under an idempotency key. It repeats the answer for 24 hours.
type savedAnswer struct {
	at     time.Time
	failed bool
}

// reply is the answer to a call, as the sender receives it.
type reply struct {
	taken     bool
	refused   bool
	duplicate bool // the provider had already accepted the report
	replayed  bool // the answer is the saved answer of an earlier call
	failed    bool // the sender does not learn the outcome
}

// newFarSide returns a provider without customers for a connection.
func newFarSide(connection metering.ConnectionID, receiver bool) *farSide {
	return &farSide{
		connection: connection, receiver: receiver, latest: make(map[string]map[billing.PeriodPlace]*storedReport), contracts: make(map[string][]*contract),
		places: make(map[metering.MeterID]billing.Destination), priceNo: make(map[metering.MeterID]int), tariffs: make(map[tariffKey]*tariff), answers: make(map[string]savedAnswer),
	}
}

// take processes one call. customer is the name of the ledger's customer. what is the failure that the call meets.
func (f *farSide) take(customer string, r *storedReport, what trouble, now time.Time) reply {
	if what == serverError {
		return reply{failed: true}
	}
	if what == refusal || r.Kind == billing.ChargeReport && r.Counting == billing.Adds && !f.byID(r.Target).charges(r.Currency) {
		return reply{refused: true}
	}
	if f.receiver {
		periods := f.latest[customer]
		if periods == nil {
			periods = make(map[billing.PeriodPlace]*storedReport)
			f.latest[customer] = periods
		}
		if former := periods[r.place()]; former == nil || former.number <= r.number {
			periods[r.place()] = r
		}
		r.arrived = true
		return reply{taken: what != answerLost, failed: what == answerLost}
	}
	return f.takeCall(r, what, now)
}

// takeCall processes a call to a counter.
func (f *farSide) takeCall(r *storedReport, what trouble, now time.Time) reply {
	key := r.id.String() + "." + strconv.Itoa(r.key)
	if saved, known := f.answers[key]; known && now.Sub(saved.at) < 24*time.Hour {
		return reply{taken: !saved.failed, failed: saved.failed, replayed: true}
	}
	events := r.Kind == billing.QuantityReport && !r.Destination.OnlyWhileRun
	if events && slices.ContainsFunc(f.calls, func(c *call) bool { return c.id == r.id && now.Sub(c.at) < 24*time.Hour }) {
		return reply{taken: what != answerLost, failed: what == answerLost, duplicate: true}
	}
	c := &call{storedReport: r, at: now, dropped: what == silentDrop && events}
	if r.Kind == billing.QuantityReport {
		c.invoice = f.invoiceAt(r)
		if c.invoice == nil || r.Destination.OnlyWhileRun && !now.Before(c.invoice.End) {
			return reply{refused: true}
		}
		c.onNone = c.invoice.final
	}
	refused := r.Kind == billing.ChargeReport && r.Counting == billing.Replaces && !f.setsItem(r, now)
	if refused || r.Kind == billing.ActionReport && !f.finalizes(r) {
		return reply{refused: true}
	}
	f.answers[key] = savedAnswer{now, what == savedError} // a refusal is not saved
	r.arrived = true
	f.calls = append(f.calls, c)
	lost := what == answerLost || what == savedError
	return reply{taken: !lost, failed: lost}
}

// mistake adds a dropped call for a report that did not arrive although the total seems to contain it. The provider has
// silently dropped another call of the opposite quantity, so its total is right.
func (f *farSide) mistake(r *storedReport, now time.Time) {
	arrived := slices.ContainsFunc(f.calls, func(c *call) bool { return c.id == r.id })
	if in := f.invoiceAt(r); !arrived && in != nil {
		f.calls = append(f.calls, &call{storedReport: r, at: now, invoice: in, onNone: in.final, dropped: true})
	}
}

// invoiceAt returns the invoice of the period that contains the quantity's timestamp, or nil.
func (f *farSide) invoiceAt(r *storedReport) *invoice {
	of := r.Customer
	if strings.HasSuffix(r.Target, " beside") {
		of = besides(of)
	}
	for _, c := range f.contracts[of] {
		for _, in := range c.invoices {
			if in.Contains(r.timestamp) && (!r.Destination.OnlyWhileRun || strings.HasPrefix(r.Target, c.id+" ")) {
				return in
			}
		}
	}
	return nil
}

// billed returns the units of a meter's period that the provider bills with the calls for which counts is true.
// It includes all customer ids at the provider, because they are of the same customer.
func (f *farSide) billed(customer string, meter metering.MeterID, period billing.PeriodPlace, counts func(*call) bool) (units metering.Decimal) {
	if f.receiver {
		if r := f.latest[customer][period]; r != nil {
			for _, l := range r.Lines {
				if l.MeterID == meter && l.Closed.IsZero() {
					units = units.Add(l.Quantity)
				}
			}
		}
		return units
	}
	type series struct {
		target string
		start  int64 // of the window or, unless each window's quantity is billed, of the invoice
	}
	last := make(map[series]metering.Decimal)
	for _, c := range f.calls {
		if c.Kind != billing.QuantityReport || !counts(c) || c.Lines[0].MeterID != meter || !c.isOf(period) {
			continue
		}
		start := c.Window.Start
		if c.Counting != billing.Replaces { // the invoice bills the sum, or the latest quantity, of all windows
			start = c.invoice.Start
		}
		at := series{c.Target + string(c.Method), start.UnixMicro()}
		if last[at] = c.Quantity.Add(last[at]); c.Counting != billing.Adds {
			last[at] = c.Lines[0].Quantity
		}
	}
	return sumOf(last)
}

// sumOf adds up the quantities. A negative quantity is billed as 0.
func sumOf[K comparable](places map[K]metering.Decimal) (units metering.Decimal) {
	for _, value := range places {
		if !value.IsNegative() {
			units = units.Add(value)
		}
	}
	return units
}

// onInvoice returns the units of a meter that an invoice bills.
func (f *farSide) onInvoice(in *invoice, meter metering.MeterID) (units metering.Decimal) {
	var latest *call
	last := make(map[string]metering.Decimal)
	for _, c := range f.calls {
		if c.Kind != billing.QuantityReport || c.invoice != in || !c.bills() || c.Lines[0].MeterID != meter {
			continue
		}
		switch c.Counting {
		case billing.Adds:
			units = units.Add(c.Quantity)
		case billing.Latest:
			if latest == nil || !c.timestamp.Before(latest.timestamp) {
				latest = c
			}
		default:
			last[fmt.Sprint(c.Target, c.Window.Start.UnixMicro())] = c.Quantity
		}
	}
	for _, value := range last {
		units = units.Add(value)
	}
	if latest != nil {
		units = units.Add(latest.Quantity)
	}
	if units.IsNegative() {
		return metering.Decimal{} // a negative total is billed as 0
	}
	return units
}

// unheard returns the units of a meter that an invoice bills, as far as Odometer can know before it reads the
// invoice: the accepted units of each period.
func (f *farSide) unheard(in *invoice, meter metering.MeterID) (units metering.Decimal) {
	last := make(map[string]metering.Decimal)
	for _, c := range f.calls {
		if c.Kind != billing.QuantityReport || c.invoice != in || !c.known() || c.Lines[0].MeterID != meter || c.id == (uuid.UUID{}) {
			continue
		}
		at := fmt.Sprint(c.Target, c.Method, c.Period, c.Window.Start.UnixMicro())
		if c.Counting != billing.Replaces { // the report's subscription does not matter
			at = fmt.Sprint(c.Target, c.Method, c.Period)
		}
		if last[at] = c.Quantity.Add(last[at]); c.Counting != billing.Adds {
			last[at] = c.Lines[0].Quantity
		}
	}
	return sumOf(last)
}

// has reports whether the provider accepted any quantity of the meter's period.
func (f *farSide) has(meter metering.MeterID, period billing.PeriodPlace) bool {
	return slices.ContainsFunc(f.calls, func(c *call) bool {
		return c.Kind == billing.QuantityReport && c.Lines[0].MeterID == meter && c.isOf(period)
	})
}

// amounts adds the money that the provider bills for a meter's closed period to own and late, by currency: own
// for the period's lines in statements, late for adjustments.
func (f *farSide) amounts(customer string, meter metering.MeterID, period billing.PeriodPlace, own, late map[string]metering.Decimal) {
	for at, r := range f.latest[customer] {
		for _, l := range r.Lines {
			switch {
			case l.MeterID != meter, r.stream != period.Stream:
			case l.Closed.IsZero() && at.Compare(period) == 0:
				own[l.Currency] = own[l.Currency].Add(l.Amount)
			case !l.Closed.IsZero() && l.Closed.Equal(period.Start):
				late[l.Currency] = late[l.Currency].Add(l.Amount)
			}
		}
	}
	for _, c := range f.calls {
		if c.Kind == billing.ChargeReport && c.Counting == billing.Adds && c.Lines[0].MeterID == meter && c.isOf(period) {
			late[c.Currency] = late[c.Currency].Add(c.Quantity)
		}
	}
	for _, it := range f.items {
		if it.line.late && it.line.meter == meter && it.line.period == period.Start.UnixMicro() {
			late[it.currency] = late[it.currency].Add(it.set)
		}
	}
}

// counted returns the total that the provider shows as counted for a destination in a range. It excludes calls
// that arrived within the lag.
func (f *farSide) counted(customer, target string, counting billing.Counting, r metering.Range, now time.Time) (total metering.Decimal) {
	var latest time.Time
	last := make(map[time.Time]metering.Decimal)
	for _, c := range f.calls {
		seen := c.Kind == billing.QuantityReport && c.Customer == customer && c.Target == target && r.Contains(c.timestamp) && !c.dropped
		if !seen || c.at.After(now.Add(-f.lag)) {
			continue
		}
		switch counting {
		case billing.Adds:
			total = total.Add(c.Quantity)
		case billing.Latest:
			if !c.timestamp.Before(latest) {
				total, latest = c.Quantity, c.timestamp
			}
		default:
			last[c.timestamp] = c.Quantity
		}
	}
	for _, value := range last {
		total = total.Add(value)
	}
	return total
}

// contract returns the customer's running contract, or nil.
func (f *farSide) contract(customer string) *contract {
	if all := f.contracts[customer]; len(all) > 0 && !all[len(all)-1].ended {
		return all[len(all)-1]
	}
	return nil
}

// byID returns the contract with the id, of any customer, or nil.
func (f *farSide) byID(id string) *contract {
	for _, all := range f.contracts {
		for _, c := range all {
			if c.id == id {
				return c
			}
		}
	}
	return nil
}

// charges reports whether the contract accepts charges in the currency.
func (c *contract) charges(currency string) bool { return !c.ended && c.currency == currency }

// last returns the invoice of the current period, or of the last one after the contract has ended.
func (c *contract) last() *invoice { return c.invoices[len(c.invoices)-1] }

// onTrial reports whether a period of the contract is a free trial.
func (c *contract) onTrial(period metering.Range) bool {
	return c.trial && period.Start.Equal(c.invoices[0].Start)
}

// roll begins the periods of the contract up to now.
func (c *contract) roll(now time.Time) {
	for last := c.last(); !last.End.After(now); last = c.last() {
		c.invoices = append(c.invoices, &invoice{Range: metering.Range{Start: last.End, End: c.next(last)}})
	}
}

// next returns the end of the period after last. Months end on the day of the month on which the first period
// ended, or on the last day of a shorter month.
func (c *contract) next(last *invoice) time.Time {
	if !c.monthly {
		return last.End.Add(last.End.Sub(last.Start))
	}
	anchor := c.invoices[0].End
	month := time.Date(anchor.Year(), anchor.Month()+time.Month(len(c.invoices)), 1, anchor.Hour(), anchor.Minute(), anchor.Second(), 0, time.UTC)
	return month.AddDate(0, 0, min(anchor.Day(), month.AddDate(0, 1, -1).Day())-1)
}

// side returns the customer's state as a read returns it. If no contract runs, it describes the contract that
// ended last, while that contract's last invoice is a draft.
func (f *farSide) side(customer string, meters []metering.Meter, now time.Time) *billing.Side {
	c := f.contract(customer)
	if c != nil {
		c.roll(now)
	} else if all := f.contracts[customer]; len(all) > 0 && !all[len(all)-1].last().final {
		c = all[len(all)-1]
	}
	s := &billing.Side{Customer: customer}
	if f.charging {
		s.Charges = f.charges(c, meters)
	}
	takes := c != nil && (f.own || !c.ended)
	for _, m := range meters {
		d := f.destination(c, m.ID)
		takes = takes || d.Excluded.Code == ""
		s.Destinations = append(s.Destinations, d)
	}
	if !takes && f.charging {
		s.Charges = f.charges(nil, meters)
	}
	if takes {
		s.Subscription, s.Period, s.Currency, s.Ended = c.id, c.last().Range, c.currency, c.ended
		s.Trial = c.onTrial(s.Period)
	}
	return s
}

// runs returns when the customer's contracts run, and their targets.
func (f *farSide) runs(customer string) (all []billing.Run) {
	for _, c := range slices.Concat(f.contracts[customer], f.contracts[besides(customer)]) {
		run := billing.Run{Subscription: c.id, BeganAt: c.invoices[0].Start}
		if c.ended {
			run.EndedAt, run.Targets = &c.last().End, c.had
		} else {
			run.Targets = f.targets(c)
		}
		all = append(all, run)
	}
	return all
}

// targets returns the targets of the contract's items, sorted.
func (f *farSide) targets(c *contract) (all []string) {
	for _, d := range f.itemsOf(c) {
		if d.OnlyWhileRun {
			d.Target = c.id + " " + d.Target
		}
		all = append(all, d.Target)
	}
	return slices.Sorted(slices.Values(all))
}

// destination returns the destination of the meter's usage for contract c, or the reason for which the meter is
// excluded.
func (f *farSide) destination(c *contract, meter metering.MeterID) billing.Destination {
	d, known := f.places[meter]
	switch {
	case c == nil:
		return billing.Destination{MeterID: meter, Excluded: billing.NoTarget("the customer has no subscription")}
	case !known:
		return billing.Destination{MeterID: meter, Excluded: billing.NoTarget("nothing there has the meter's price")}
	case d.OnlyWhileRun && c.ended:
		return billing.Destination{MeterID: meter, Excluded: billing.NoTarget("the subscription has ended")}
	case d.OnlyWhileRun:
		d.Target = c.id + " " + d.Target
	}
	d.Price = f.tariff(meter, c)
	return d
}

// inMode returns the providers of one mode. Usage that is billed in one mode is unbilled in the other.
func (l *life) inMode(test bool) (sides []*farSide) {
	for _, f := range l.farSides {
		if f.test == test {
			sides = append(sides, f)
		}
	}
	return sides
}

// billedOf returns the money that the providers of one mode bill for a closed line, see amounts.
func (l *life) billedOf(p billing.Period, line billing.ClosedLine, test bool) (own, late map[string]metering.Decimal) {
	own, late = make(map[string]metering.Decimal), make(map[string]metering.Decimal)
	for _, f := range l.inMode(test) {
		f.amounts(l.name, line.MeterID, p.Place(), own, late)
	}
	return own, late
}
