// Package lives is how the life of a simulated customer is written down. Where
// the simulator in billing's tests has lived one, those who have the real parts
// can live it too, and have to come to the same. Only tests use it.
package lives

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Life is a customer's: what it began with, what was done, and what that came to.
type Life struct {
	Seed            uint64              `json:"seed"`
	Born            time.Time           `json:"born"`
	Timezone        string              `json:"timezone"`
	GraceSeconds    int64               `json:"grace_seconds"`
	LatePolicy      metering.LatePolicy `json:"late_policy"`
	BillingStartsAt *time.Time          `json:"billing_starts_at,omitempty"`
	Actions         []Action            `json:"actions"`
	Outcome
}

// Outcome is what a life came to.
type Outcome struct {
	Reports  []Report    `json:"reports"`
	Periods  []Period    `json:"periods"`
	Received []Statement `json:"received"`
}

// Kind is what is done.
type Kind string

// The kinds of actions. The steps of a worker's pass name the pass.
const (
	Meter       Kind = "meter"       // made
	Counted     Kind = "counted"     // a meter's past
	Version     Kind = "version"     // of a meter, with its past counted at once
	Scale       Kind = "usage_scale" // of a meter
	Price       Kind = "price"
	Assign      Kind = "assign" // a plan, or 0, to the customer
	LatePolicy  Kind = "late_policy"
	Grace       Kind = "grace"
	Receiver    Kind = "receiver"    // connected in the place of what was before
	Counter     Kind = "counter"     // the same, of quantities
	Resubscribe Kind = "resubscribe" // the customer's subscription at the counter ends, another one begins
	Link        Kind = "link"        // the customer to the counter's
	Unlink      Kind = "unlink"
	Invoice     Kind = "invoice" // is final, and the counter says so
	Use         Kind = "use"
	Again       Kind = "again" // what was sent before arrives once more
	Sync        Kind = "sync"  // a whole pass that meets no trouble
	Begin       Kind = "begin"
	ReadSide    Kind = "read"
	Plan        Kind = "plan"
	Lease       Kind = "lease"
	Call        Kind = "call"
	Settle      Kind = "settle"
	Dies        Kind = "dies"    // the worker of the pass
	Resolve     Kind = "resolve" // an operator, what is in doubt
	Close       Kind = "close"
	Look        Kind = "look" // at who is out of sync
)

// Fate is what meets a call.
type Fate string

// What may meet a call.
const (
	Taken       Fate = "taken"
	AnswerLost  Fate = "answer_lost"  // it was taken
	ServerError Fate = "server_error" // it was not
	Refused     Fate = "refused"
	Late        Fate = "late"        // its time is over
	SavedError  Fate = "saved_error" // it was taken, and the error comes again
	Dropped     Fate = "dropped"     // it was taken, and is never counted
	NoCall      Fate = "no_call"     // what came of it is known without one
)

// Action is one thing that is done at an instant. Meters, plans, connections
// and passes count from 1 in the order in which they are first named.
type Action struct {
	At          time.Time            `json:"at"`
	Do          Kind                 `json:"do"`
	Meter       metering.MeterID     `json:"meter,omitempty"`
	Aggregation metering.Aggregation `json:"aggregation,omitempty"`
	Scale       int32                `json:"usage_scale,omitempty"`
	Backfilling bool                 `json:"backfilling,omitempty"`
	GroupBy     []string             `json:"group_by,omitempty"`
	Price       *billing.Terms       `json:"price,omitempty"` // nil: the customer's own price ends
	Plan        metering.PlanID      `json:"plan,omitempty"`
	Own         bool                 `json:"own,omitempty"` // the price is the customer's own
	From        *time.Time           `json:"from,omitempty"`
	LatePolicy  metering.LatePolicy  `json:"late_policy,omitempty"`
	Seconds     int64                `json:"seconds,omitempty"`
	Connection  int                  `json:"connection,omitempty"`
	Places      []Place              `json:"places,omitempty"`   // of a counter
	Currency    string               `json:"currency,omitempty"` // of a subscription at a counter
	Trial       bool                 `json:"trial,omitempty"`    // its first period is one
	Time        *time.Time           `json:"time,omitempty"`     // of usage; when the first period of a counter's, or an invoice's, ends
	Value       *metering.Decimal    `json:"value,omitempty"`
	Properties  json.RawMessage      `json:"properties,omitempty"` // of usage
	Pass        int                  `json:"pass,omitempty"`
	Excluded    []metering.MeterID   `json:"excluded,omitempty"`
	Sends       []int64              `json:"sends,omitempty"` // the numbers of what a plan has sent
	Report      int64                `json:"report,omitempty"`
	ReadFirst   bool                 `json:"read_first,omitempty"`
	Method      billing.Method       `json:"method,omitempty"` // of a report that goes to a counter
	Busy        bool                 `json:"busy,omitempty"`   // the report may not be leased
	Fate        Fate                 `json:"fate,omitempty"`
	State       billing.State        `json:"state,omitempty"`
	OutOfSync   bool                 `json:"out_of_sync,omitempty"`
}

// Place is how a counter takes a meter's quantities: as record, delta or last.
type Place struct {
	Meter  metering.MeterID     `json:"meter"`
	Method billing.Method       `json:"method"`
	Window metering.Granularity `json:"window,omitempty"`
	Price  Tariff               `json:"price"`
}

// Tariff is a counter's own price, in the smallest unit of the currency.
type Tariff struct {
	Flat  metering.Decimal `json:"flat"`
	UpTo  metering.Decimal `json:"up_to"` // the last unit at First
	First metering.Decimal `json:"first"`
	Rest  metering.Decimal `json:"rest"`
}

// Report is one that was written down, as it stands in the end.
type Report struct {
	Number     int64             `json:"number"`
	Kind       billing.Kind      `json:"kind"`
	Connection int               `json:"connection"`
	Period     time.Time         `json:"period"`
	Quantity   *metering.Decimal `json:"quantity,omitempty"`
	State      billing.State     `json:"state"`
	Attempts   int               `json:"attempts"`
	Lines      []Line            `json:"lines"`
}

// Line is what a report says of a meter, in the order of closed periods and meters.
type Line struct {
	Meter        metering.MeterID `json:"meter"`
	Closed       *time.Time       `json:"closed,omitempty"`
	Usage        metering.Decimal `json:"usage"`
	Events       int64            `json:"events"`
	Quantity     metering.Decimal `json:"quantity"`
	PriceVersion int              `json:"price_version"`
	UnitPrice    metering.Decimal `json:"unit_price"`
	Charge       metering.Decimal `json:"charge"`
	Amount       metering.Decimal `json:"amount"`
	Currency     string           `json:"currency"`
}

// SortLines puts lines into their order.
func SortLines(lines []Line) {
	slices.SortFunc(lines, func(a, b Line) int {
		return cmp.Or(closedAt(a).Compare(closedAt(b)), cmp.Compare(a.Meter, b.Meter))
	})
}

func closedAt(l Line) (at time.Time) {
	if l.Closed != nil {
		at = *l.Closed
	}
	return at
}

// Period is one of the customer's, with what it closed at.
type Period struct {
	Start    time.Time    `json:"start"`
	End      time.Time    `json:"end"`
	ClosedAt *time.Time   `json:"closed_at,omitempty"`
	Lines    []ClosedLine `json:"lines,omitempty"`
}

// ClosedLine is what a closed period came to for a meter.
type ClosedLine struct {
	Meter        metering.MeterID `json:"meter"`
	Usage        metering.Decimal `json:"usage"`
	Events       int64            `json:"events"`
	PriceVersion int              `json:"price_version"`
	Charge       metering.Decimal `json:"charge"`
	Currency     string           `json:"currency"`
	Billed       bool             `json:"billed"`
	Scale        *int32           `json:"scale,omitempty"`
}

// Statement is the last one that a receiver has of a period.
type Statement struct {
	Connection int       `json:"connection"`
	Period     time.Time `json:"period"`
	Number     int64     `json:"number"`
}

// Text is the outcome, one thing a line, for two to be compared.
func (o Outcome) Text() (string, error) {
	text, err := json.MarshalIndent(o, "", " ")
	return string(text), err
}

// Encode is the file of a life: an action a line.
func (l Life) Encode() ([]byte, error) {
	actions := l.Actions
	l.Actions = nil
	whole, err := json.MarshalIndent(l, "", "\t")
	if err != nil {
		return nil, err
	}
	lines := make([][]byte, len(actions))
	for i, a := range actions {
		if lines[i], err = json.Marshal(a); err != nil {
			return nil, err
		}
	}
	all := append([]byte("\"actions\": [\n\t\t"), bytes.Join(lines, []byte(",\n\t\t"))...)
	all = append(all, "\n\t]"...)
	return append(bytes.Replace(whole, []byte(`"actions": null`), all, 1), '\n'), nil
}

// Load reads the lives of a folder.
func Load(folder string) (all []Life, err error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.json"))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var l Life
		if err := json.Unmarshal(text, &l); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		all = append(all, l)
	}
	return all, nil
}
