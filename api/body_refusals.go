package api

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	refusedLogEvery = time.Minute      // for each budget
	exhaustedFor    = 10 * time.Second // after a body found no room
)

// refusedBodies counts the bodies that were not read to their end, and logs them
// once a minute, however many there are.
type refusedBodies struct {
	total *prometheus.CounterVec
	log   *slog.Logger

	mu       sync.Mutex
	unlogged map[string]int // by budget
	logged   map[string]time.Time
	full     time.Time // when a body found no room last
}

func newRefusedBodies(total *prometheus.CounterVec, log *slog.Logger) *refusedBodies {
	return &refusedBodies{total: total, log: log, unlogged: make(map[string]int), logged: make(map[string]time.Time)}
}

func (r *refusedBodies) count(budget, reason string) {
	r.total.WithLabelValues(budget, reason).Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if reason == "full" {
		r.full = now
	}
	r.unlogged[budget]++
	if now.Sub(r.logged[budget]) < refusedLogEvery {
		return
	}
	r.log.Warn("request bodies are refused", "budget", budget, "reason", reason, "bodies", r.unlogged[budget])
	r.logged[budget], r.unlogged[budget] = now, 0
}

// exhausted reports whether a body has found no room lately.
func (r *refusedBodies) exhausted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.full) < exhaustedFor
}
