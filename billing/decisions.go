package billing

import "slices"

// Decision is what an operator makes of a discrepancy between what a closed
// period's meter came to and what the provider's final invoices bill of it.
type Decision string

const (
	Waive    Decision = "waive"     // what they lack is not billed, because of what happened at the provider
	Rebill   Decision = "rebill"    // it is billed in a target period
	WriteOff Decision = "write_off" // it is given up
)

// Values are all decisions.
func (Decision) Values() []Decision { return []Decision{Waive, Rebill, WriteOff} }

var decided = map[Decision]ReconciliationState{
	Waive: ReconciliationWaived, Rebill: ReconciliationCarried, WriteOff: ReconciliationWrittenOff,
}

// Decide is what the decision makes of the reconciliation. What is rebilled is
// all that no invoice that stands bills; what somebody else has reported is not
// taken back.
func (r Reconciliation) Decide(d Decision) Reconciliation {
	r.State, r.Billed = decided[d], r.Units
	if d == Rebill {
		r.Billed = r.Elsewhere.Add(r.Invoiced).Sub(r.Unexplained)
	}
	return r
}

// Stands says whether the decision would change nothing. What is carried is
// written down anew whenever an invoice says something else.
func (r Reconciliation) Stands(d Decision) bool {
	after := r.Decide(d)
	return r.State == after.State && (d == Rebill || r.Billed.Equal(after.Billed))
}

// Decisions are those that would change something: none before the last invoice
// of the period is final, and none where the invoices agree.
func (r Reconciliation) Decisions() []Decision {
	if r.State == ReconciliationOpen || r.State == ReconciliationAgreed {
		return nil
	}
	return slices.DeleteFunc(Decision("").Values(), r.Stands)
}
