package db

import (
	"context"
	"time"
)

// Evaluator evaluates due customers, and looks for others every second.
type Evaluator struct {
	evaluations Evaluations
	now         func() time.Time
	stop        chan struct{}
	stopped     chan struct{}
}

const (
	evaluateEvery  = time.Second
	evaluateWithin = 30 * time.Second // the time of one pass
)

// NewEvaluator starts an Evaluator. It reports failures to failed, and tries again a second later.
func NewEvaluator(store *DB, now func() time.Time, failed func(error)) *Evaluator {
	e := &Evaluator{evaluations: store.Evaluations, now: now, stop: make(chan struct{}), stopped: make(chan struct{})}
	go e.run(failed)
	return e
}

// Close waits for the evaluation in progress.
func (e *Evaluator) Close() {
	close(e.stop)
	<-e.stopped
}

func (e *Evaluator) run(failed func(error)) {
	defer close(e.stopped)
	every := time.NewTicker(evaluateEvery)
	defer every.Stop()
	for {
		select {
		case <-e.stop:
			return
		case <-every.C:
		}
		for e.pass(failed) && !e.isStopping() {
		}
	}
}

// pass reports whether it evaluated customers, after whom others may be due.
func (e *Evaluator) pass(failed func(error)) (evaluated bool) {
	ctx, cancel := context.WithTimeout(context.Background(), evaluateWithin)
	defer cancel()
	evaluated, err := e.evaluations.Pass(ctx, e.now())
	if err != nil {
		failed(err)
	}
	return evaluated && err == nil
}

func (e *Evaluator) isStopping() bool {
	select {
	case <-e.stop:
		return true
	default:
		return false
	}
}
