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

// trouble is what may meet one call.
type trouble int

const (
	noTrouble      trouble = iota
	answerLost             // it was taken
	serverError            // it was not taken
	savedError             // it was taken, and what answers its idempotency key is the error
	refusal                // it was not taken, and never will be as it is
	silentDrop             // it was taken, and is never counted
	anotherInstant         // the answer comes, and so does the report once more
)

// farSide is a provider as it is, whatever Odometer knows of it.
type farSide struct {
	connection metering.ConnectionID
	receiver   bool                                             // it takes statements
	moves      int                                              // how often a receiver has moved to another URL
	test       bool                                             // nobody is charged for what it has
	other      *farSide                                         // the same account in the other mode
	latest     map[string]map[billing.PeriodPlace]*storedReport // of a receiver: by customer and period, the highest sequence
	contracts  map[string][]*contract                           // by customer there
	places     map[metering.MeterID]billing.Destination
	beside     map[metering.MeterID]billing.Destination // of second subscriptions
	priceNo    map[metering.MeterID]int                 // how many prices each had before
	tariffs    map[tariffKey]*tariff                    // that were asked for
	calls      []*call
	answers    map[string]savedAnswer // by idempotency key
	lag        time.Duration          // of what it shows as counted
	charging   bool                   // it is asked where charges go
	items      []*item
	own        bool       // who has no subscription there gets invoices of ours
	ours       []*invoice // these
}

// contract is a customer's subscription, with an invoice for each of its periods.
type contract struct {
	id       string
	invoices []*invoice
	ended    bool     // it refuses charges; while its last invoice is a draft, it takes usage
	had      []string // the targets of its items when it ended
	trial    bool     // its first period is one
	monthly  bool     // after its first period it runs in months
	currency string   // it refuses charges in another one
}

type invoice struct {
	metering.Range
	final bool
	heard bool // that it is final
	cut   bool // its subscription was cancelled at once
	none  bool // and made no invoice of it

	void, heardVoid bool // of one of ours: nobody has to pay it
}

// call is a quantity or a charge that was taken.
type call struct {
	*storedReport
	at      time.Time
	invoice *invoice
	onNone  bool // it came once its invoice was final
	lost    bool // it is on none any more: its price was swapped since, or its subscription ended without one
	dropped bool
	found   bool // it was read once the ledger was restored
	missed  bool // that was read, and it was not there
	unknown bool // its report was lost with the restore, and less was read than is known to have been taken
}

// bySomebodyElse is a call that another program makes at the same destination.
func (c *call) bySomebodyElse(now time.Time) *call {
	theirs := *c.storedReport
	theirs.id, theirs.Period, theirs.Quantity = uuid.UUID{}, time.Time{}, metering.Whole(31)
	return &call{storedReport: &theirs, at: now, invoice: c.invoice, onNone: c.invoice.final}
}

// bills says whether what was taken is on an invoice.
func (c *call) bills() bool { return !c.onNone && !c.lost && !c.dropped }

// given says whether it was taken to be billed.
func (c *call) given() bool { return !c.onNone }

// known says whether it is billed as far as anybody can know: what was accepted
// is, where nobody hears of the invoice, but for what was looked for in vain.
func (c *call) known() bool {
	if c.invoice.heard {
		return c.bills()
	}
	return c.bills() && !c.unknown || !c.missed && (c.state != billing.Rejected || c.found)
}

type savedAnswer struct {
	at     time.Time
	failed bool
}

// reply is what a sender hears.
type reply struct {
	taken     bool
	refused   bool
	duplicate bool // it was there already
	replayed  bool // the answer is that to an earlier call
	failed    bool // there is no decision
}

func newFarSide(connection metering.ConnectionID, receiver bool) *farSide {
	return &farSide{
		connection: connection, receiver: receiver, latest: make(map[string]map[billing.PeriodPlace]*storedReport), contracts: make(map[string][]*contract),
		places: make(map[metering.MeterID]billing.Destination), priceNo: make(map[metering.MeterID]int), tariffs: make(map[tariffKey]*tariff), answers: make(map[string]savedAnswer),
	}
}

// take is one call; customer is the ledger's.
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

// invoiceAt is the invoice of the period that a quantity's timestamp lies in.
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

// billed is how many units the far side bills of a meter's period with the calls
// that count, all customers there being the same one.
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
	type window struct {
		target string
		start  int64
	}
	last := make(map[window]metering.Decimal)
	for _, c := range f.calls {
		if c.Kind != billing.QuantityReport || !counts(c) || c.Lines[0].MeterID != meter || !c.isOf(period) {
			continue
		}
		start := c.Window.Start
		if c.Counting == billing.Latest {
			start = c.invoice.Start // an invoice bills the last one, whichever window it was of
		}
		at := window{c.Target + string(c.Method), start.UnixMicro()}
		if last[at] = c.Quantity.Add(last[at]); c.Counting != billing.Adds {
			last[at] = c.Lines[0].Quantity
		}
	}
	return sumOf(last)
}

// sumOf adds up what places have: less than nothing is billed as nothing.
func sumOf[K comparable](places map[K]metering.Decimal) (units metering.Decimal) {
	for _, value := range places {
		if !value.IsNegative() {
			units = units.Add(value)
		}
	}
	return units
}

// onInvoice is how many units of a meter an invoice bills.
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
		return metering.Decimal{} // less than nothing is billed as nothing
	}
	return units
}

// unheard is how many units of a meter an invoice bills as far as anybody can
// know who has not heard of it: what was accepted of each period.
func (f *farSide) unheard(in *invoice, meter metering.MeterID) (units metering.Decimal) {
	last := make(map[string]metering.Decimal)
	for _, c := range f.calls {
		if c.Kind != billing.QuantityReport || c.invoice != in || !c.known() || c.Lines[0].MeterID != meter || c.id == (uuid.UUID{}) {
			continue
		}
		at := fmt.Sprint(c.Target, c.Method, c.Period, c.Window.Start.UnixMicro())
		if c.Counting == billing.Latest { // whichever subscription it was made for
			at = fmt.Sprint(c.Target, c.Method, c.Period)
		}
		if last[at] = c.Quantity.Add(last[at]); c.Counting != billing.Adds {
			last[at] = c.Lines[0].Quantity
		}
	}
	return sumOf(last)
}

// has says whether it was reported any quantity of the meter's period.
func (f *farSide) has(meter metering.MeterID, period billing.PeriodPlace) bool {
	return slices.ContainsFunc(f.calls, func(c *call) bool {
		return c.Kind == billing.QuantityReport && c.Lines[0].MeterID == meter && c.isOf(period)
	})
}

// amounts is the money that the far side bills of a meter's closed period, by
// currency: the period's own, and what late usage adjusts.
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

// counted is what the provider shows as counted of a destination in a range.
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

// contract is the one that runs, if there is one.
func (f *farSide) contract(customer string) *contract {
	if all := f.contracts[customer]; len(all) > 0 && !all[len(all)-1].ended {
		return all[len(all)-1]
	}
	return nil
}

// byID is the contract of an id, whoever's it is.
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

// charges says whether the contract takes charges in the currency.
func (c *contract) charges(currency string) bool { return !c.ended && c.currency == currency }

// last is the invoice of its present period, or of its last one.
func (c *contract) last() *invoice { return c.invoices[len(c.invoices)-1] }

// onTrial says whether nothing is charged for a period of the contract's.
func (c *contract) onTrial(period metering.Range) bool {
	return c.trial && period.Start.Equal(c.invoices[0].Start)
}

// roll begins the periods that the contract lacks up to now.
func (c *contract) roll(now time.Time) {
	for last := c.last(); !last.End.After(now); last = c.last() {
		c.invoices = append(c.invoices, &invoice{Range: metering.Range{Start: last.End, End: c.next(last)}})
	}
}

// next is the end of the period after this one. A month ends on the day of the
// first period's end, or on the month's last.
func (c *contract) next(last *invoice) time.Time {
	if !c.monthly {
		return last.End.Add(last.End.Sub(last.Start))
	}
	anchor := c.invoices[0].End
	month := time.Date(anchor.Year(), anchor.Month()+time.Month(len(c.invoices)), 1, anchor.Hour(), anchor.Minute(), anchor.Second(), 0, time.UTC)
	return month.AddDate(0, 0, min(anchor.Day(), month.AddDate(0, 1, -1).Day())-1)
}

// side is what a reader is told of the customer. Where nothing runs, it is the
// contract that has ended and whose last invoice is a draft.
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
		takes = takes || d.Excluded == ""
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

// runs are those of the customer's contracts.
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

// targets are those of the items that the contract has.
func (f *farSide) targets(c *contract) (all []string) {
	for _, d := range f.itemsOf(c) {
		if d.OnlyWhileRun {
			d.Target = c.id + " " + d.Target
		}
		all = append(all, d.Target)
	}
	return slices.Sorted(slices.Values(all))
}

// destination is where a meter's usage goes of who has the contract.
func (f *farSide) destination(c *contract, meter metering.MeterID) billing.Destination {
	d, known := f.places[meter]
	switch {
	case c == nil:
		return billing.Destination{MeterID: meter, Excluded: "the customer has no subscription"}
	case !known:
		return billing.Destination{MeterID: meter, Excluded: "nothing there has the meter's price"}
	case d.OnlyWhileRun && c.ended:
		return billing.Destination{MeterID: meter, Excluded: "the subscription has ended"}
	case d.OnlyWhileRun:
		d.Target = c.id + " " + d.Target
	}
	d.Price = f.tariff(meter, c)
	return d
}

// inMode are the far sides of one mode: what the others have does not count for them.
func (l *life) inMode(test bool) (sides []*farSide) {
	for _, f := range l.farSides {
		if f.test == test {
			sides = append(sides, f)
		}
	}
	return sides
}

// billedOf is the money that the far sides of one mode bill of a closed line.
func (l *life) billedOf(p billing.Period, line billing.ClosedLine, test bool) (own, late map[string]metering.Decimal) {
	own, late = make(map[string]metering.Decimal), make(map[string]metering.Decimal)
	for _, f := range l.inMode(test) {
		f.amounts(l.name, line.MeterID, p.Place(), own, late)
	}
	return own, late
}
