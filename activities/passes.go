package activities

import (
	"cmp"
	"slices"

	"github.com/google/uuid"
)

// Steps are what a pass over a customer's billing is made of: a workflow takes
// each as an activity, a batch takes them one after the other. An error is one
// that no answer to a request can explain.
type Steps interface {
	// Read reads what the customer is at the provider, unless that was done a
	// moment ago; again wants it read in any case. failure is for operators.
	Read(again bool) (failure string, err error)
	// Plan writes down what is to be reported next.
	Plan() (plan PlanReportsResult, failure string, err error)
	// Send sends one report until it is decided on.
	Send(Report) (Ending, error)
	// Count looks for what was accepted in what the provider has counted.
	Count() error
}

// Ending is what came of sending a report.
type Ending struct {
	Accepted bool
	Left     bool   // it was not to be sent
	Refused  bool   // what the customer is at the provider may be something else by now: it is read and planned again
	Stop     bool   // the provider does not answer: nothing else is sent
	Failure  string // for operators
}

// Passed is what a pass did.
type Passed struct {
	Reports []uuid.UUID // that it sent, and that it found up to date
	Sent    int         // of them, those that were accepted
	Failure string      // for operators; "" where all went well
}

// readsAtMost bounds how often what a customer is at the provider may change
// between reading and planning.
const readsAtMost = 3

// Pass brings a customer's usage to the provider: it reads the provider's side,
// if it has one to read, plans and sends, until the plan has nothing more. Each
// series is reported once at most, so that steady events do not keep it going.
// What is refused does not hold back the others.
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
