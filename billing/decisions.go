package billing

import "slices"

// Decision is an operator's decision about a difference between a closed line and the provider's final invoices.
type Decision string

const (
	Waive    Decision = "waive"     // the missing part is not billed, because of a change at the provider
	Rebill   Decision = "rebill"    // the missing part is billed in a target period
	WriteOff Decision = "write_off" // the missing part is given up
)

// Values returns all decisions.
func (Decision) Values() []Decision { return []Decision{Waive, Rebill, WriteOff} }

// decided maps each decision to the state of the reconciliation after it.
var decided = map[Decision]ReconciliationState{
	Waive: ReconciliationWaived, Rebill: ReconciliationCarried, WriteOff: ReconciliationWrittenOff,
}

// Decide returns the reconciliation after the decision. Rebill bills everything except Elsewhere and the part that
// valid (not void) invoices bill. It gives no credit for the Unexplained part, which Odometer has not reported.
func (r Reconciliation) Decide(d Decision) Reconciliation {
	r.State, r.Billed = decided[d], r.Units
	if d == Rebill {
		r.Billed = r.Elsewhere.Add(r.Invoiced).Sub(r.Unexplained)
	}
	return r
}

// Stands reports whether the decision would change nothing. For Rebill, it compares only the state, because a carried
// reconciliation is stored again whenever its invoices change.
func (r Reconciliation) Stands(d Decision) bool {
	after := r.Decide(d)
	return r.State == after.State && (d == Rebill || r.Billed.Equal(after.Billed))
}

// Decisions returns the decisions that would change the reconciliation. It returns none before the last invoice of the
// period is final, or if the invoices agree.
func (r Reconciliation) Decisions() []Decision {
	if r.State == ReconciliationOpen || r.State == ReconciliationAgreed {
		return nil
	}
	return slices.DeleteFunc(Decision("").Values(), r.Stands)
}
