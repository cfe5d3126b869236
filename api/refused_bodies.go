package api

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// exhaustedFor is the time for which GET /readyz reports bodies as exhausted after a body was refused for lack of
// memory.
const exhaustedFor = 10 * time.Second

// refusedBodies counts the refused request bodies. It logs them at most once a minute for each budget.
type refusedBodies struct {
	total *prometheus.CounterVec
	log   *slog.Logger
	logs  sparseLogs[string] // by budget

	mu   sync.Mutex
	full time.Time // last time at which a body was refused for lack of memory
}

func newRefusedBodies(total *prometheus.CounterVec, log *slog.Logger) *refusedBodies {
	return &refusedBodies{total: total, log: log}
}

func (r *refusedBodies) count(budget, reason string) {
	r.total.WithLabelValues(budget, reason).Inc()
	now := time.Now()
	if reason == "full" {
		r.mu.Lock()
		r.full = now
		r.mu.Unlock()
	}
	if n := r.logs.add(budget, now); n > 0 {
		r.log.Warn("the API refuses request bodies", "budget", budget, "reason", reason, "bodies", n)
	}
}

// exhausted reports whether a body was refused for lack of memory within the last exhaustedFor.
func (r *refusedBodies) exhausted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.full) < exhaustedFor
}
