package activities

import (
	"cmp"
	"slices"

	"github.com/google/uuid"
)

// Steps are the steps of a pass over a customer's billing. A workflow runs each step as an
// activity; a batch calls the steps directly. A failure of a step is a message for operators and
// becomes the answer to the sync requests. An error ends the pass without such a message.
type Steps interface {
	// Read reads the customer's state at the provider. Without again, it may reuse a recent read.
	Read(again bool) (failure string, err error)
	// Plan plans and stores the next reports.
	Plan() (plan PlanReportsResult, failure string, err error)
	// Send sends one report until it is decided.
	Send(Report) (Ending, error)
	// Count checks which accepted reports the provider has counted.
	Count() error
}

// Ending is the result of sending a report.
type Ending struct {
	Accepted bool
	Left     bool   // the report was skipped, because its meter is excluded
	Refused  bool   // the customer's state at the provider may have changed: the pass reads the state and plans again
	Stop     bool   // the provider does not answer: the pass ends
	Failure  string // message for operators
}

// Passed is the result of a pass.
type Passed struct {
	Reports []uuid.UUID // sent reports, and reports that were already up to date
	Sent    int         // number of accepted reports
	Failure string      // message for operators; "": no failure
}

// readsAtMost bounds the number of additional reads when the customer's state at the provider
// changes between reading and planning.
const readsAtMost = 3

// Pass reports a customer's usage to the provider. It reads the customer's state if reads is set,
// and then plans and sends until the plan contains no new report. It reports each series at most
// once, so that a steady flow of events does not keep the pass going. A refused report does not
// delay other reports.
func Pass(s Steps, reads bool) (p Passed, err error) {
	var tried []uuid.UUID
	for again, unread := false, 0; ; {
		if reads {
			failure, err := s.Read(again)
			if p.fail(failure); err != nil || failure != "" {
				return p, err
			}
		}
		plan, failure, err := s.Plan()
		if p.fail(failure); err != nil || failure != "" {
			return p, err
		}
		if plan.ReadFirst {
			if unread++; unread > readsAtMost {
				p.fail("the customer's subscriptions at the provider changed during the sync; sync again")
				return p, nil
			}
			reads, again = true, true
			continue
		}
		again = false
		send := slices.DeleteFunc(plan.Send, func(r Report) bool { return slices.Contains(tried, r.ID) })
		for _, report := range send {
			tried = append(tried, report.ID)
			end, err := s.Send(report)
			if err != nil {
				return p, err
			}
			if p.add(report, end); end.Stop {
				return p, nil
			}
			again = again || end.Refused
		}
		if len(send) == 0 || !plan.More && !again {
			p.Reports = append(p.Reports, plan.UpToDate...)
			break
		}
	}
	if reads && p.Sent > 0 {
		err = s.Count()
	}
	return p, err
}

func (p *Passed) add(report Report, end Ending) {
	if !end.Left {
		p.Reports = append(p.Reports, report.ID)
	}
	if end.Accepted {
		p.Sent++
	}
	p.fail(end.Failure)
}

func (p *Passed) fail(failure string) { p.Failure = cmp.Or(failure, p.Failure) }
