package db

import (
	"context"
	"time"
)

// Evaluator evaluates due customers, and looks for others every second.
type Evaluator struct{ repeater *repeater }

const (
	evaluateEvery  = time.Second
	evaluateWithin = 30 * time.Second // the time of one pass
)

// NewEvaluator starts an Evaluator. It reports failures to failed, and tries again a second later.
func NewEvaluator(store *DB, now func() time.Time, failed func(error)) *Evaluator {
	return &Evaluator{startRepeater(evaluateEvery, func(r *repeater) {
		for !r.isClosing() && evaluatePass(store.Evaluations, now(), failed) {
		}
	})}
}

// Close waits for the evaluation in progress.
func (e *Evaluator) Close() { e.repeater.close() }

// evaluatePass reports whether it evaluated customers, after whom others may be due.
func evaluatePass(evaluations Evaluations, now time.Time, failed func(error)) (evaluated bool) {
	ctx, cancel := context.WithTimeout(context.Background(), evaluateWithin)
	defer cancel()
	evaluated, err := evaluations.Pass(ctx, now)
	if err != nil {
		failed(err)
	}
	return evaluated && err == nil
}
