package billing

import (
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// HoldState is where the hold of a draft invoice stands.
type HoldState string

const (
	HoldPlanned   HoldState = "planned"   // the provider has not taken it yet
	Held          HoldState = "held"      // not everything is reported, counted and compared yet
	HoldDisagrees HoldState = "disagrees" // what was compared differs: somebody has to look
	HoldReleasing HoldState = "releasing" // the draft is told to become final
	HoldReleased  HoldState = "released"  // it became final as it was told
	HoldExpired   HoldState = "expired"   // it became final by itself, at the deadline
	HoldFinalized HoldState = "finalized" // somebody else had it become final
	HoldTheirs    HoldState = "theirs"    // somebody decides on the draft at the provider: it is left alone
	HoldRefused   HoldState = "refused"   // the provider did not take it: the draft becomes final by itself
)

// Values are all states of a hold.
func (HoldState) Values() []HoldState {
	return []HoldState{HoldPlanned, Held, HoldDisagrees, HoldReleasing, HoldReleased, HoldExpired, HoldFinalized, HoldTheirs, HoldRefused}
}

// Ended says whether there is nothing left to do about the invoice.
func (s HoldState) Ended() bool {
	switch s {
	case HoldReleased, HoldExpired, HoldFinalized, HoldTheirs, HoldRefused:
		return true
	}
	return false
}

// Releasable says whether an operator can have the invoice released.
func (s HoldState) Releasable() bool { return !s.Ended() && s != HoldReleasing }

// Draft is an invoice that may still change, as a provider shows it, with what
// decides when it becomes final.
type Draft struct {
	Gone        bool        `json:"-"`        // the provider has it no longer
	FinalizedAt time.Time   `json:"-"`        // zero while it is a draft
	Automatic   bool        `json:"-"`        // it becomes final by itself
	FinalizesAt time.Time   `json:"-"`        // when, by itself; zero: the provider does not say
	Settings    string      `json:"settings"` // a hash of what people can change of it beside its lines
	Currency    string      `json:"currency"` // ISO 4217
	Lines       []DraftLine `json:"lines"`
}

// DraftLine is one line of a draft, before discounts and tax.
type DraftLine struct {
	ID        string            `json:"id"` // at the provider
	MeterID   metering.MeterID  `json:"meter_id,omitempty"`
	ReportID  *uuid.UUID        `json:"report_id,omitempty"` // that put it there; nil: none of ours
	Item      string            `json:"item,omitempty"`      // of the subscription
	Price     string            `json:"price,omitempty"`     // at the provider
	Metered   bool              `json:"metered,omitempty"`   // its units are those of some earlier moment, and are counted again when it becomes final
	Quantity  metering.Decimal  `json:"quantity"`
	Amount    metering.Decimal  `json:"amount"`
	UnitPrice *metering.Decimal `json:"unit_price,omitempty"` // in the currency; nil: each unit does not cost the same
}

// Ours says whether anything on the draft is of our making.
func (d Draft) Ours() bool {
	for _, l := range d.Lines {
		if l.MeterID != 0 || l.ReportID != nil {
			return true
		}
	}
	return false
}

// HoldAction is a report that holds or releases an invoice.
type HoldAction struct {
	ID          uuid.UUID // zero: it is not planned
	State       State
	Response    string
	LeasedUntil time.Time // somebody may be sending it until then
}

// Same says whether an action stands where it stood.
func (a HoldAction) Same(o HoldAction) bool { return a.ID == o.ID && a.State == o.State }

// Withdrawn is the response of an action that was taken back before it arrived. It is stored
// and compared: do not reword it.
const Withdrawn = "withdrawn: the invoice shows that the request did not arrive"

// HeldPlace is what a meter's usage of the invoice's period comes to in one
// place at the provider.
type HeldPlace struct {
	MeterID     metering.MeterID
	Reported    metering.Decimal // that the provider has accepted
	Counted     metering.Decimal // that it has counted
	Outstanding bool             // something is on its way
	Terms       *Terms           // ours, whatever the provider charges; nil: the meter had no price
}

// HeldLine is what a meter comes to in the invoice's period, where that is set as
// an amount.
type HeldLine struct {
	MeterID     metering.MeterID
	ReportID    uuid.UUID // the last one that the provider has accepted; zero: none was
	Amount      metering.Decimal
	Outstanding bool // something is on its way
}

// HeldSync is the sync that a hold has asked for after the grace.
type HeldSync struct {
	Status   metering.SyncStatus // "": none was asked for
	Excluded []Exclusion
}

// HoldFacts is everything that is known about a held invoice at one instant.
type HoldFacts struct {
	Now        time.Time
	GraceUntil time.Time // until when its period takes usage
	Deadline   time.Time // when it becomes final by itself
	Before     Draft     // as it was when it was to be held
	Draft      Draft     // as it is
	Hold       HoldAction
	Release    HoldAction
	Asked      bool // an operator has asked for its release
	Replaced   bool // the connection is not the tenant's any more
	Sync       HeldSync
	Places     []HeldPlace
	Lines      []HeldLine                     // that no other invoice has taken
	Charges    map[uuid.UUID]metering.Decimal // of our reports on its lines, what the provider has accepted
}

// HoldDecision is what is to be done about a held invoice.
type HoldDecision struct {
	State    HoldState
	Reasons  []HoldReason
	Settle   []Resolved // of its reports, those whose outcome it shows
	SendHold bool
	Release  bool      // it agrees, or an operator has decided: it is told to become final
	Sync     bool      // the customer has to be synced
	Until    time.Time // nothing is to be done before; zero: it is looked at again and again
}

// maxAlarm is how long after the grace what is not counted, or not reported,
// is merely late.
const maxAlarm = time.Hour

// alarmAt is when what is missing becomes a disagreement.
func (f HoldFacts) alarmAt() time.Time {
	return f.GraceUntil.Add(min(maxAlarm, f.Deadline.Sub(f.GraceUntil)/2))
}

// Decide compares the draft with what was reported and says what is to be done.
// It never has a draft released that somebody has changed.
func (f HoldFacts) Decide() HoldDecision {
	switch {
	case f.Replaced:
		return HoldDecision{State: HoldTheirs, Reasons: reasons(HoldConnectionReplaced)}
	case f.Draft.Gone:
		return f.end(HoldTheirs, HoldInvoiceGone)
	case !f.Draft.FinalizedAt.IsZero():
		return f.final()
	case f.Release.LeasedUntil.After(f.Now):
		return HoldDecision{State: HoldReleasing, Until: f.Release.LeasedUntil}
	}
	held := f.Hold.State.Taken() || f.Hold.State.Outstanding() && f.Hold.State != Planned && f.Draft.FinalizesAt.Equal(f.Deadline)
	if code := f.changed(held); code != "" {
		return f.end(HoldTheirs, code)
	}
	switch {
	case f.Hold.State == Rejected:
		return HoldDecision{State: HoldRefused, Reasons: []HoldReason{{Code: HoldNotTaken, Response: f.Hold.Response}}}
	case !held:
		return HoldDecision{State: HoldPlanned, SendHold: true}
	}
	d := f.compare()
	if f.Hold.State.Outstanding() {
		d.Settle = append(d.Settle, Resolved{f.Hold.ID, Accepted})
	}
	if !d.Release && f.Release.State.Outstanding() { // it is a draft still: the release did not arrive
		d.Settle = append(d.Settle, Resolved{f.Release.ID, Rejected})
	}
	return d
}

// compare says whether a draft that is held can go.
func (f HoldFacts) compare() HoldDecision {
	if f.Asked {
		return f.release()
	}
	if f.Now.Before(f.GraceUntil) {
		return HoldDecision{State: Held, Until: f.GraceUntil}
	}
	if f.Sync.Status == "" {
		return HoldDecision{State: Held, Sync: true}
	}
	wrong, missing := f.disagreements(), f.missing()
	d := HoldDecision{State: Held, Reasons: append(wrong, missing...), Sync: f.Sync.Status == metering.SyncFailed}
	switch {
	case len(wrong) > 0, len(missing) > 0 && !f.Now.Before(f.alarmAt()):
		d.State = HoldDisagrees
	case len(missing) == 0:
		return f.release()
	}
	return d
}

// release tells the draft to become final, again where that was refused.
func (f HoldFacts) release() HoldDecision {
	d := HoldDecision{State: HoldReleasing, Release: true}
	if f.Release.State == Rejected && f.Release.Response != Withdrawn {
		d.State, d.Reasons = HoldDisagrees, []HoldReason{{Code: HoldNotReleased, Response: f.Release.Response}}
	}
	return d
}

// final is how an invoice became so that is final.
func (f HoldFacts) final() HoldDecision {
	overdue := !f.Draft.FinalizedAt.Before(f.Deadline)
	switch sent := f.Release.State; {
	case sent.Taken(), sent == Sending, sent == InDoubt:
		return f.end(HoldReleased, "")
	case overdue && f.Hold.State != Planned && f.Hold.State != Rejected:
		return f.end(HoldExpired, HoldDeadlinePassed)
	}
	return f.end(HoldFinalized, HoldFinalizedThere)
}

// end settles what was on its way: what the invoice shows is what arrived.
func (f HoldFacts) end(state HoldState, code HoldCode) HoldDecision {
	d := HoldDecision{State: state, Reasons: reasons(code)}
	if f.Hold.State.Outstanding() {
		d.Settle = append(d.Settle, Resolved{f.Hold.ID, outcome(state == HoldExpired || state == HoldReleased)})
	}
	if f.Release.State.Outstanding() {
		d.Settle = append(d.Settle, Resolved{f.Release.ID, outcome(state == HoldReleased)})
	}
	return d
}

func outcome(arrived bool) State {
	if arrived {
		return Accepted
	}
	return Rejected
}
