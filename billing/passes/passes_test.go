package passes_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing/passes"
)

// script implements passes.Steps with prepared results in order, and records the calls. It repeats the last plan.
type script struct {
	calls   []string
	reads   []string // failures of the first reads
	plans   []passes.Plan
	planned string // failure of every plan
	endings map[byte]passes.Ending
	failing string // call that fails with errGone
}

var errGone = errors.New("gone")

// note records a call. It returns errGone for the call that fails.
func (s *script) note(call string) error {
	s.calls = append(s.calls, call)
	if call == s.failing {
		return errGone
	}
	return nil
}

func (s *script) Read(_ context.Context, again bool) (failure string, err error) {
	call := "read"
	if again {
		call = "read again"
	}
	if len(s.reads) > 0 {
		failure, s.reads = s.reads[0], s.reads[1:]
	}
	return failure, s.note(call)
}

func (s *script) Plan(context.Context) (plan passes.Plan, failure string, err error) {
	plan = s.plans[0]
	if len(s.plans) > 1 {
		s.plans = s.plans[1:]
	}
	return plan, s.planned, s.note("plan")
}

func (s *script) Send(_ context.Context, r passes.Report) (passes.Ending, error) {
	end, ok := s.endings[r.ID[0]]
	if !ok {
		end = passes.Ending{Accepted: true}
	}
	return end, s.note(fmt.Sprint("send ", r.ID[0]))
}

func (s *script) Count(context.Context) error { return s.note("count") }

// reports returns a report for each name, with only an ID.
func reports(names ...byte) (all []passes.Report) {
	for _, name := range names {
		all = append(all, passes.Report{ID: id(name)})
	}
	return all
}

func id(name byte) uuid.UUID { return uuid.UUID{name} }

func ids(names ...byte) (all []uuid.UUID) {
	for _, name := range names {
		all = append(all, id(name))
	}
	return all
}

// sends returns a plan with reports to send.
func sends(names ...byte) passes.Plan {
	return passes.Plan{Send: reports(names...)}
}

// more returns the plan with More set.
func more(plan passes.Plan) passes.Plan {
	plan.More = true
	return plan
}

// upToDate returns the plan with reports that are already correct.
func upToDate(plan passes.Plan, names ...byte) passes.Plan {
	plan.UpToDate = ids(names...)
	return plan
}

func TestPassReadsPlansSendsAndCountsInOrder(t *testing.T) {
	t.Parallel()
	readFirst := passes.Plan{ReadFirst: true}
	for name, c := range map[string]struct {
		script
		reads  bool
		calls  []string
		result passes.Result
	}{
		"nothing new where the side is read": {
			script: script{plans: []passes.Plan{upToDate(sends(), 9)}}, reads: true,
			calls: []string{"read", "plan"}, result: passes.Result{Reports: ids(9)},
		},
		"three reports where the side is read": {
			script: script{plans: []passes.Plan{sends(1, 2, 3)}}, reads: true,
			calls: []string{"read", "plan", "send 1", "send 2", "send 3", "count"}, result: passes.Result{Reports: ids(1, 2, 3), Sent: 3},
		},
		"statements are neither read nor counted": {
			script: script{plans: []passes.Plan{upToDate(sends(1), 9)}},
			calls:  []string{"plan", "send 1"}, result: passes.Result{Reports: ids(1, 9), Sent: 1},
		},
		"a plan that has more is made again": {
			script: script{plans: []passes.Plan{more(sends(1)), sends(2)}},
			calls:  []string{"plan", "send 1", "plan", "send 2"}, result: passes.Result{Reports: ids(1, 2), Sent: 2},
		},
		"what is up to date is so at the end": {
			script: script{plans: []passes.Plan{more(upToDate(sends(1), 8)), upToDate(sends(), 9)}},
			calls:  []string{"plan", "send 1", "plan"}, result: passes.Result{Reports: ids(1, 9), Sent: 1},
		},
		"each report is tried once": {
			script: script{plans: []passes.Plan{more(sends(1, 2)), more(sends(2, 3, 1)), more(sends(3, 2, 1))}},
			calls:  []string{"plan", "send 1", "send 2", "plan", "send 3", "plan"}, result: passes.Result{Reports: ids(1, 2, 3), Sent: 3},
		},
		"a refusal holds no other back and has the side read and planned again": {
			script: script{plans: []passes.Plan{sends(1, 2), sends(3)}, endings: map[byte]passes.Ending{1: {Refused: true, Failure: "correct it"}}}, reads: true,
			calls: []string{"read", "plan", "send 1", "send 2", "read again", "plan", "send 3", "count"}, result: passes.Result{Reports: ids(1, 2, 3), Sent: 2, Failure: "correct it"},
		},
		"a refusal that nothing comes after": {
			script: script{plans: []passes.Plan{sends(1), sends(1)}, endings: map[byte]passes.Ending{1: {Refused: true, Failure: "correct it"}}}, reads: true,
			calls: []string{"read", "plan", "send 1", "read again", "plan"}, result: passes.Result{Reports: ids(1), Failure: "correct it"},
		},
		"the side is read again once for each refusal": {
			script: script{plans: []passes.Plan{sends(1), more(sends(2)), sends(3)}, endings: map[byte]passes.Ending{1: {Refused: true}}}, reads: true,
			calls: []string{"read", "plan", "send 1", "read again", "plan", "send 2", "read", "plan", "send 3", "count"}, result: passes.Result{Reports: ids(1, 2, 3), Sent: 2},
		},
		"a provider that does not answer stops it": {
			script: script{plans: []passes.Plan{upToDate(more(sends(1, 2, 3)), 9)}, endings: map[byte]passes.Ending{2: {Stop: true, Failure: "away"}}}, reads: true,
			calls: []string{"read", "plan", "send 1", "send 2"}, result: passes.Result{Reports: ids(1, 2), Sent: 1, Failure: "away"},
		},
		"what is left out is none of its reports": {
			script: script{plans: []passes.Plan{sends(1, 2)}, endings: map[byte]passes.Ending{1: {Left: true}}}, reads: true,
			calls: []string{"read", "plan", "send 1", "send 2", "count"}, result: passes.Result{Reports: ids(2), Sent: 1},
		},
		"what is in doubt is reported and does not count as sent": {
			script: script{plans: []passes.Plan{sends(1)}, endings: map[byte]passes.Ending{1: {Failure: "look at Stripe"}}}, reads: true,
			calls: []string{"read", "plan", "send 1"}, result: passes.Result{Reports: ids(1), Failure: "look at Stripe"},
		},
		"a later success forgives no failure": {
			script: script{plans: []passes.Plan{sends(1, 2, 3)}, endings: map[byte]passes.Ending{1: {Failure: "first"}, 2: {Failure: "second"}}},
			calls:  []string{"plan", "send 1", "send 2", "send 3"}, result: passes.Result{Reports: ids(1, 2, 3), Sent: 1, Failure: "second"},
		},
		"a side that cannot be read": {
			script: script{plans: []passes.Plan{sends(1)}, reads: []string{"correct the customer"}}, reads: true,
			calls: []string{"read"}, result: passes.Result{Failure: "correct the customer"},
		},
		"a side that cannot be read again": {
			script: script{plans: []passes.Plan{sends(1, 2)}, reads: []string{"", "correct the customer"}, endings: map[byte]passes.Ending{1: {Refused: true, Failure: "correct it"}}}, reads: true,
			calls: []string{"read", "plan", "send 1", "send 2", "read again"}, result: passes.Result{Reports: ids(1, 2), Sent: 1, Failure: "correct the customer"},
		},
		"no plan": {
			script: script{plans: []passes.Plan{{}}, planned: "no billing provider is configured"},
			calls:  []string{"plan"}, result: passes.Result{Failure: "no billing provider is configured"},
		},
		"a side that has to be read first": {
			script: script{plans: []passes.Plan{readFirst, sends(1)}}, reads: true,
			calls: []string{"read", "plan", "read again", "plan", "send 1", "count"}, result: passes.Result{Reports: ids(1), Sent: 1},
		},
		"a provider of another kind since it began": {
			script: script{plans: []passes.Plan{readFirst, sends(1)}},
			calls:  []string{"plan", "read again", "plan", "send 1", "count"}, result: passes.Result{Reports: ids(1), Sent: 1},
		},
		"a side that changes for ever": {
			script: script{plans: []passes.Plan{readFirst}}, reads: true,
			calls:  []string{"read", "plan", "read again", "plan", "read again", "plan", "read again", "plan"},
			result: passes.Result{Failure: "the customer's subscriptions at the provider changed during the sync; sync again"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			result, err := passes.Run(t.Context(), &c.script, c.reads)
			require.NoError(t, err)
			require.Equal(t, c.calls, c.script.calls)
			require.Equal(t, c.result, result)
		})
	}
}

// TestErrorInAnyStepEndsPass checks that an error ends the pass, and that the result contains the reports sent
// before it.
func TestErrorInAnyStepEndsPass(t *testing.T) {
	t.Parallel()
	for failing, reports := range map[string][]uuid.UUID{"read": nil, "plan": nil, "send 1": nil, "send 2": ids(1), "count": ids(1, 2)} {
		s := &script{plans: []passes.Plan{sends(1, 2)}, failing: failing}
		result, err := passes.Run(t.Context(), s, true)
		require.ErrorIs(t, err, errGone)
		require.Equal(t, reports, result.Reports, failing)
		require.Len(t, reports, result.Sent)
		require.Equal(t, failing, s.calls[len(s.calls)-1], "nothing comes after it")
	}
}
