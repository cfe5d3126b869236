package billing

import (
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/metering"
)

// HoldState is the state of the hold of a draft invoice.
type HoldState string

const (
	HoldPlanned   HoldState = "planned"   // the provider has not accepted the hold yet
	Held          HoldState = "held"      // some usage is not reported, counted or compared yet
	HoldDisagrees HoldState = "disagrees" // an operator has to act on a difference or a refused release
	HoldReleasing HoldState = "releasing" // the request to release the draft is planned or sent
	HoldReleased  HoldState = "released"  // the invoice became final after its release was sent
	HoldExpired   HoldState = "expired"   // the provider finalized the invoice at the deadline
	HoldFinalized HoldState = "finalized" // finalized in another way, for example by a user at the provider
	HoldTheirs    HoldState = "theirs"    // Odometer no longer acts on the draft, for example because a user changed it
	HoldRefused   HoldState = "refused"   // the hold was refused or too late: the draft becomes final as usual
)

// Values returns all states of a hold.
func (HoldState) Values() []HoldState {
	return []HoldState{HoldPlanned, Held, HoldDisagrees, HoldReleasing, HoldReleased, HoldExpired, HoldFinalized, HoldTheirs, HoldRefused}
}

// Ended reports whether the hold has ended: Odometer takes no further action on the invoice.
func (s HoldState) Ended() bool {
	switch s {
	case HoldReleased, HoldExpired, HoldFinalized, HoldTheirs, HoldRefused:
		return true
	}
	return false
}

// Releasable reports whether an operator can release the invoice.
func (s HoldState) Releasable() bool { return !s.Ended() && s != HoldReleasing }

// Draft is an invoice that may not be final yet, as read from the provider.
type Draft struct {
	Gone        bool        `json:"-"`        // the invoice no longer exists at the provider
	FinalizedAt time.Time   `json:"-"`        // zero: the invoice is a draft
	Automatic   bool        `json:"-"`        // the provider finalizes the draft automatically
	FinalizesAt time.Time   `json:"-"`        // time of the automatic finalization; zero: unknown
	Settings    string      `json:"settings"` // hash of the fields, except lines, that users can edit
	Currency    string      `json:"currency"` // ISO 4217
	Lines       []DraftLine `json:"lines"`
}

// DraftLine is one line of a draft, before discounts and tax.
type DraftLine struct {
	ID        string            `json:"id"` // at the provider
	MeterID   metering.MeterID  `json:"meter_id,omitempty"`
	ReportID  *uuid.UUID        `json:"report_id,omitempty"` // the report that last set the line; nil: no report
	Item      string            `json:"item,omitempty"`      // subscription item at the provider
	Price     string            `json:"price,omitempty"`     // at the provider
	Metered   bool              `json:"metered,omitempty"`   // units are a snapshot, counted again at finalization
	Quantity  metering.Decimal  `json:"quantity"`
	Amount    metering.Decimal  `json:"amount"`
	UnitPrice *metering.Decimal `json:"unit_price,omitempty"` // in the currency; nil: no common price of all units
}

// Ours reports whether a line of the draft bills one of our meters or comes from one of our reports.
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
	ID          uuid.UUID // zero: the action is not planned
	State       State
	Response    string
	LeasedUntil time.Time // until then, a worker may be sending the report
}

// Same reports whether both actions are the same report in the same state.
func (a HoldAction) Same(o HoldAction) bool { return a.ID == o.ID && a.State == o.State }

// Withdrawn is the response of an action that was rejected because the invoice shows that the request did not arrive.
// The response is stored and compared: do not reword it.
const Withdrawn = "withdrawn: the invoice shows that the request did not arrive"

// HeldPlace is the usage of a meter in the invoice's period at one destination.
type HeldPlace struct {
	MeterID     metering.MeterID
	Reported    metering.Decimal // units that the provider has accepted
	Counted     metering.Decimal // units that the provider has counted
	Outstanding bool             // the outcome of a report is not known yet
	Terms       *Terms           // our price, even if the provider charges its own; nil: the meter had no price
}

// HeldLine is the amount of a meter for the invoice's period, if a report sets the amount.
type HeldLine struct {
	MeterID     metering.MeterID
	ReportID    uuid.UUID // the last accepted report; zero: none
	Amount      metering.Decimal
	Outstanding bool // the outcome of a report is not known yet
}

// HeldSync is the customer's newest successful sync since the hold requested a sync. If no sync has succeeded since, it
// is the newest one.
type HeldSync struct {
	Status   metering.SyncStatus // "": no sync was requested
	Excluded []Exclusion
}

// HoldFacts contains all known facts about a held invoice at one instant.
type HoldFacts struct {
	Now        time.Time
	GraceUntil time.Time // end of the grace: until then, the invoice's period accepts usage
	Deadline   time.Time // when the held draft becomes final automatically
	Before     Draft     // the draft when the hold was recorded
	Draft      Draft     // the draft now
	Hold       HoldAction
	Release    HoldAction
	Asked      bool // an operator has requested the release
	Replaced   bool // the tenant no longer uses the connection
	Sync       HeldSync
	Places     []HeldPlace
	Lines      []HeldLine                     // lines that are on no final invoice yet
	Charges    map[uuid.UUID]metering.Decimal // accepted amounts of the charge reports that the draft's lines name
}

// HoldDecision is the next action for a held invoice.
type HoldDecision struct {
	State    HoldState
	Reasons  []HoldReason
	Settle   []Resolved // hold and release reports with the outcome that the invoice shows
	SendHold bool
	Release  bool      // release the draft, because the draft agrees or an operator requested the release
	Sync     bool      // the customer needs a sync
	Until    time.Time // no action is needed before this time; zero: compare again at the usual interval
}

// maxAlarm is the maximum time after the grace for which missing counts and reports are treated as late. After that
// time, they are treated as a disagreement.
const maxAlarm = time.Hour

// alarmAt returns the time from which missing counts and reports are a disagreement.
func (f HoldFacts) alarmAt() time.Time {
	return f.GraceUntil.Add(min(maxAlarm, f.Deadline.Sub(f.GraceUntil)/2))
}

// Decide compares the draft with the reports and returns the next action. It does not release a draft in which it
// finds a user's change.
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
	held := f.isHeld()
	if code := f.changed(held); code != "" {
		return f.end(HoldTheirs, code)
	}
	switch {
	case f.Hold.State == Rejected:
		return HoldDecision{State: HoldRefused, Reasons: []HoldReason{{Code: HoldNotTaken, Response: f.Hold.Response}}}
	case !held:
		return HoldDecision{State: HoldPlanned, SendHold: true}
	}
	return f.settle(f.compare())
}

// isHeld reports whether the provider has accepted the hold, or the draft shows that the hold arrived.
func (f HoldFacts) isHeld() bool {
	return f.Hold.State.Taken() || f.Hold.State.Outstanding() && f.Hold.State != Planned && f.Draft.FinalizesAt.Equal(f.Deadline)
}

// settle adds to the decision the outcomes of the hold report and the release report that the held draft shows.
func (f HoldFacts) settle(d HoldDecision) HoldDecision {
	if f.Hold.State.Outstanding() {
		d.Settle = append(d.Settle, Resolved{f.Hold.ID, Accepted})
	}
	if !d.Release && f.Release.State.Outstanding() { // the invoice is still a draft: the release did not arrive
		d.Settle = append(d.Settle, Resolved{f.Release.ID, Rejected})
	}
	return d
}

// compare decides whether a held draft can be released.
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

// release returns the decision to release the draft. If the provider refused the last release, the state is
// HoldDisagrees, and another release is sent. A withdrawn release does not count as refused.
func (f HoldFacts) release() HoldDecision {
	d := HoldDecision{State: HoldReleasing, Release: true}
	if f.Release.State == Rejected && f.Release.Response != Withdrawn {
		d.State, d.Reasons = HoldDisagrees, []HoldReason{{Code: HoldNotReleased, Response: f.Release.Response}}
	}
	return d
}

// final returns the decision for an invoice that has become final.
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

// end returns the decision that ends the hold in the given state. The state also shows whether an outstanding hold or
// release arrived, so the decision settles these reports.
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

// outcome returns Accepted for a request that arrived at the provider, else Rejected.
func outcome(arrived bool) State {
	if arrived {
		return Accepted
	}
	return Rejected
}
