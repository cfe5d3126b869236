// Package lives defines the recorded form of a simulated customer's history. The simulator in the tests of
// package billing records histories; the tests of the real components replay them and must reach the same
// outcome. Only tests use this package.
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

// Life is the recorded history of one customer: the initial settings, the actions and their outcome.
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

// Outcome is the final state of a life, which every replay must reproduce.
type Outcome struct {
	Reports  []Report    `json:"reports"`
	Periods  []Period    `json:"periods"`
	Received []Statement `json:"received"`
}

// Kind is the kind of an action.
type Kind string

// The kinds of actions. Begin to Dies are the steps of a pass, in which a worker syncs the customer. Each such
// action contains the number of its pass.
const (
	Meter       Kind = "meter"       // creates a meter
	Counted     Kind = "counted"     // the backfill of a meter is finished
	Version     Kind = "version"     // creates a meter version and counts its past at once
	Scale       Kind = "usage_scale" // changes the usage scale of a meter
	Price       Kind = "price"       // sets the price of a meter, of a plan or of the customer
	Assign      Kind = "assign"      // assigns a plan to the customer; plan 0 ends the assignment
	LatePolicy  Kind = "late_policy" // changes the policy for late usage
	Grace       Kind = "grace"       // changes the grace period
	Receiver    Kind = "receiver"    // connects a receiver of statements in place of the previous connection
	Counter     Kind = "counter"     // connects a provider that counts quantities in place of the previous connection
	Resubscribe Kind = "resubscribe" // ends the customer's subscription at the counter and begins another
	Link        Kind = "link"        // links the customer to the counter's customer
	Unlink      Kind = "unlink"      // removes that link
	Invoice     Kind = "invoice"     // an invoice becomes final, and the counter reports it
	Use         Kind = "use"         // sends an event with usage of the customer
	Again       Kind = "again"       // a report that was sent before arrives once more
	Sync        Kind = "sync"        // a whole pass without failures
	Begin       Kind = "begin"       // a worker begins a pass
	ReadSide    Kind = "read"        // reads the state of the customer at the provider
	Plan        Kind = "plan"        // plans reports
	Lease       Kind = "lease"       // leases a report, so that no other worker sends it
	Call        Kind = "call"        // sends the leased report to the provider
	Settle      Kind = "settle"      // records the result of the call
	Dies        Kind = "dies"        // the worker of the pass stops
	Resolve     Kind = "resolve"     // an operator resolves a report with an unknown outcome
	Close       Kind = "close"       // closes the billing periods that are due
	Look        Kind = "look"        // checks whether the customer is out of sync
)

// Fate is the result of a call to a provider.
type Fate string

// The fates of a call.
const (
	Taken       Fate = "taken"
	AnswerLost  Fate = "answer_lost"  // the provider accepted the report, but the answer was lost
	ServerError Fate = "server_error" // the provider did not accept the report
	Refused     Fate = "refused"
	Late        Fate = "late"        // the lease of the report had ended before the call
	SavedError  Fate = "saved_error" // the provider accepted the report, and a retry returns the saved error
	Dropped     Fate = "dropped"     // the provider accepted the report, but never counts it
	NoCall      Fate = "no_call"     // the outcome was known without a call
)

// Action is one event of a life. Meters, plans, connections and passes are numbered from 1 in the order of
// their first mention.
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
	Places      []Place              `json:"places,omitempty"`   // of a Counter or Resubscribe
	Currency    string               `json:"currency,omitempty"` // of a subscription at a counter
	Trial       bool                 `json:"trial,omitempty"`    // the first period of the subscription is a trial
	Time        *time.Time           `json:"time,omitempty"`     // of usage; for a Counter, Resubscribe or Invoice, the end of the first period or of the invoice's period
	Value       *metering.Decimal    `json:"value,omitempty"`
	Properties  json.RawMessage      `json:"properties,omitempty"` // of usage
	Pass        int                  `json:"pass,omitempty"`
	Excluded    []metering.MeterID   `json:"excluded,omitempty"`
	Sends       []int64              `json:"sends,omitempty"` // numbers of the reports that a Plan step has sent
	Report      int64                `json:"report,omitempty"`
	ReadFirst   bool                 `json:"read_first,omitempty"`
	Method      billing.Method       `json:"method,omitempty"` // of a report that goes to a counter
	Busy        bool                 `json:"busy,omitempty"`   // the report could not be leased
	Fate        Fate                 `json:"fate,omitempty"`
	State       billing.State        `json:"state,omitempty"`
	OutOfSync   bool                 `json:"out_of_sync,omitempty"`
}

// Place defines how a counter, a provider that counts quantities, counts a meter. The method is record, delta
// or last.
type Place struct {
	Meter  metering.MeterID     `json:"meter"`
	Method billing.Method       `json:"method"`
	Window metering.Granularity `json:"window,omitempty"`
	Price  Tariff               `json:"price"`
}

// Tariff is the price at a counter, in the smallest unit of the currency.
type Tariff struct {
	Flat  metering.Decimal `json:"flat"`
	UpTo  metering.Decimal `json:"up_to"` // the last unit at First
	First metering.Decimal `json:"first"`
	Rest  metering.Decimal `json:"rest"`
}

// Report is the final state of a billing report.
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

// Line is the part of a report about one meter. Lines are ordered by closed period and meter.
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

// SortLines sorts lines by closed period and meter.
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

// Period is a billing period of the customer, with the totals at its close.
type Period struct {
	Start    time.Time    `json:"start"`
	End      time.Time    `json:"end"`
	ClosedAt *time.Time   `json:"closed_at,omitempty"`
	Lines    []ClosedLine `json:"lines,omitempty"`
}

// ClosedLine is the total of a closed period for one meter.
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

// Statement is the last statement that a receiver has accepted for a period.
type Statement struct {
	Connection int       `json:"connection"`
	Period     time.Time `json:"period"`
	Number     int64     `json:"number"`
}

// Text returns the outcome as indented JSON, so that two outcomes can be compared line by line.
func (o Outcome) Text() (string, error) {
	text, err := json.MarshalIndent(o, "", " ")
	return string(text), err
}

// Encode returns the content of a life's file: JSON with one action per line.
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

// Load returns the lives of all JSON files in a folder.
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
