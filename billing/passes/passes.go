// Package passes contains the order in which a pass over a customer's billing reads, plans and sends. The
// workflow of one customer runs each step as an activity. A batch of customers calls the steps directly.
package passes

import (
	"cmp"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// Steps are the steps of a pass. C is the type of their context: a workflow's or an activity's. A failure of
// a step is a message for operators and becomes the answer to the sync requests. An error ends the pass
// without such a message.
type Steps[C any] interface {
	// Read reads the customer's state at the provider. If force is false, it may reuse a recent read.
	Read(ctx C, force bool) (failure string, err error)
	// Plan plans and stores the next reports.
	Plan(ctx C) (plan Plan, failure string, err error)
	// Send sends one report until it is decided.
	Send(ctx C, report Report) (Ending, error)
	// Count checks which accepted reports the provider has counted.
	Count(ctx C) error
}

// Plan contains the next reports of a customer. The reasons for excluded meters stay in the database, because
// they contain ids of the provider.
type Plan struct {
	ReadFirst bool        `json:"read_first,omitempty"` // nothing was planned: the customer's state at the provider has to be read first
	Send      []Report    `json:"send"`
	More      bool        `json:"more"` // the next plan may contain more reports
	UpToDate  []uuid.UUID `json:"up_to_date"`
}

// Report describes a report to send. Its recipient and its body stay in the database.
type Report struct {
	ID          uuid.UUID         `json:"id"`
	Number      int64             `json:"number"`
	Kind        billing.Kind      `json:"kind"`
	MeterID     metering.MeterID  `json:"meter_id,omitempty"`
	Method      billing.Method    `json:"method,omitempty"`
	Quantity    *metering.Decimal `json:"quantity,omitempty"`
	PeriodStart time.Time         `json:"period_start"`
	PeriodEnd   time.Time         `json:"period_end"`
	Deadline    time.Time         `json:"deadline"`
}

// Ending is the result of sending a report.
type Ending struct {
	Accepted bool
	Left     bool   // the report was skipped, because its meter is excluded
	Refused  bool   // the customer's state at the provider may have changed: the pass reads the state and plans again
	Stop     bool   // the provider does not answer: the pass ends
	Failure  string // message for operators
}

// Result is the result of a pass.
type Result struct {
	Reports []uuid.UUID // sent reports, and reports that were already up to date
	Sent    int         // number of accepted reports
	Failure string      // message for operators; "": no failure
}

// readsAtMost bounds the number of additional reads when the customer's state at the provider
// changes between reading and planning.
const readsAtMost = 3

// Run reports a customer's usage to the provider. It reads the customer's state if reads is set,
// and then plans and sends until the plan contains no new report. It reports each series at most
// once, so that a steady flow of events does not keep the pass going. A refused report does not
// delay other reports.
func Run[C any](ctx C, s Steps[C], reads bool) (Result, error) {
	p := pass[C]{steps: s, reads: reads}
	for {
		plan, ok, err := p.plan(ctx)
		if err != nil || !ok {
			return p.Result, err
		}
		tried, ok, err := p.send(ctx, plan.Send)
		if err != nil || !ok {
			return p.Result, err
		}
		if tried > 0 && (plan.More || p.again) {
			continue
		}
		p.Reports = append(p.Reports, plan.UpToDate...)
		if p.reads && p.Sent > 0 {
			err = s.Count(ctx)
		}
		return p.Result, err
	}
}

// pass is the state of a pass.
type pass[C any] struct {
	Result

	steps  Steps[C]
	reads  bool        // the customer's state at the provider is read before each plan
	again  bool        // the state may have changed since the last read
	unread int         // number of plans that needed another read
	tried  []uuid.UUID // reports that were sent or skipped
}

// plan returns the next plan, after it has read the customer's state if necessary. ok is false if the pass ends with a
// failure.
func (p *pass[C]) plan(ctx C) (plan Plan, ok bool, err error) {
	for ; p.unread <= readsAtMost; p.unread++ {
		var failure string
		if p.reads {
			failure, err = p.steps.Read(ctx, p.again)
			if p.fail(failure); err != nil || failure != "" {
				return plan, false, err
			}
		}
		plan, failure, err = p.steps.Plan(ctx)
		if p.fail(failure); err != nil || failure != "" {
			return plan, false, err
		}
		if !plan.ReadFirst {
			p.again = false
			return plan, true, nil
		}
		p.reads, p.again = true, true
	}
	p.fail("the customer's subscriptions at the provider changed during the sync; sync again")
	return plan, false, nil
}

// send sends the reports that the pass has not tried yet, and returns their number. ok is false if the provider does
// not answer.
func (p *pass[C]) send(ctx C, reports []Report) (tried int, ok bool, err error) {
	for _, report := range reports {
		if slices.Contains(p.tried, report.ID) {
			continue
		}
		p.tried = append(p.tried, report.ID)
		tried++
		end, err := p.steps.Send(ctx, report)
		if err != nil {
			return tried, false, err
		}
		if p.add(report, end); end.Stop {
			return tried, false, nil
		}
		p.again = p.again || end.Refused
	}
	return tried, true, nil
}

// add adds the result of sending a report.
func (r *Result) add(report Report, end Ending) {
	if !end.Left {
		r.Reports = append(r.Reports, report.ID)
	}
	if end.Accepted {
		r.Sent++
	}
	r.fail(end.Failure)
}

// fail sets the failure of the pass, unless it is "".
func (r *Result) fail(failure string) { r.Failure = cmp.Or(failure, r.Failure) }
