package api

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/prometheus/client_golang/prometheus"
	"go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/metering"
)

type healthOutput struct {
	Body struct {
		Status string `json:"status" enum:"ok"`
	}
}

func (s *server) registerHealth() {
	huma.Register(s.api, get("get-health", "/healthz", Public, "Check that the process runs",
		"Checks only that the process responds, not the database or Temporal."), s.health)
	huma.Register(s.api, get("get-readiness", "/readyz", Public, "Check that requests can be served",
		"Checks run at most once a second. Returns 503 in these cases:\n\n"+
			"- Events cannot be stored, or usage cannot be read.\n"+
			"- The clocks of this process and of the database differ by more than 5 seconds.\n\n"+
			"If only Temporal is unavailable, the status is 200 and `temporal` shows it: ingestion and queries still work."), s.readiness)
}

func (s *server) health(context.Context, *struct{}) (*healthOutput, error) {
	out := new(healthOutput)
	out.Body.Status = healthy
	return out, nil
}

// Readiness is the state of every check: healthy, or the kind of failure.
type Readiness struct {
	Status   string `json:"status" enum:"ok,unavailable"`
	Database string `json:"database" enum:"ok,unavailable,not_migrated,read_only,full" doc:"Whether a small write succeeds"`
	Clock    string `json:"clock" enum:"ok,unknown,wrong" doc:"Whether the clocks of the process and the database agree within 5 seconds"`
	Temporal string `json:"temporal" enum:"ok,unavailable" doc:"Whether Temporal responds. Ingestion and queries work without it"`
	Bodies   string `json:"bodies" enum:"ok,exhausted" doc:"'exhausted' if a request body was refused with 503 for lack of memory in the last 10 seconds. The process still serves other requests, so 'status' stays 'ok'"`
}

const healthy = "ok"

// check is a condition that readiness reports.
type check struct {
	name     string
	required bool // the process is not ready if the check fails
	state    *string
	probe    func(context.Context) (state string, err error)
}

// checks returns the readiness checks without running them. The state of each check points to its field of r.
func (s *server) checks(r *Readiness) []check {
	return []check{
		{"database", true, &r.Database, s.checkDatabase},
		{"clock", true, &r.Clock, s.checkClock},
		{"temporal", false, &r.Temporal, s.checkTemporal},
		{"bodies", false, &r.Bodies, s.checkBodies},
	}
}

func (s *server) checkDatabase(ctx context.Context) (string, error) {
	state, err := s.Store.Health(ctx)
	return string(state), err
}

func (s *server) checkClock(context.Context) (string, error) {
	if s.ClockOffset == nil {
		return healthy, nil
	}
	if _, known := s.ClockOffset(); !known {
		return "unknown", s.ClockOffset.Check(metering.ClockWarning)
	}
	if err := s.ClockOffset.Check(metering.ClockWarning); err != nil {
		return "wrong", err
	}
	return healthy, nil
}

func (s *server) checkTemporal(ctx context.Context) (string, error) {
	if _, err := s.Temporal.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		return "unavailable", err
	}
	return healthy, nil
}

func (s *server) checkBodies(context.Context) (string, error) {
	if s.refusedBodies.exhausted() {
		return "exhausted", nil
	}
	return healthy, nil
}

// GET /readyz needs no credential, so the checks run at most once a second.
const checkEvery = time.Second

// lastChecks is the cached result of the checks.
type lastChecks struct {
	mu     sync.Mutex
	at     time.Time // zero: never
	result Readiness
}

// check returns the results of the checks, at most checkEvery old.
func (s *server) check() Readiness {
	s.checked.mu.Lock()
	defer s.checked.mu.Unlock()
	if !s.checked.at.IsZero() && time.Since(s.checked.at) < checkEvery {
		return s.checked.result
	}
	ctx, cancel := context.WithTimeout(context.Background(), checkTimeout)
	defer cancel()
	before := s.checked.result
	now := Readiness{Status: healthy}
	states := s.checks(&before)
	for i, c := range s.checks(&now) {
		var err error
		if *c.state, err = c.probe(ctx); c.required && *c.state != healthy {
			now.Status = "unavailable"
		}
		if *c.state != *states[i].state && (err != nil || *states[i].state != "") {
			s.Log.WarnContext(ctx, "a readiness check changed its result", "check", c.name, "state", *c.state, "error", err)
		}
	}
	s.checked.result, s.checked.at = now, time.Now()
	return now
}

type readinessOutput struct {
	Status int
	Body   Readiness
}

// readiness returns 503 if a required check fails: the check of the database or of the clock.
func (s *server) readiness(context.Context, *struct{}) (*readinessOutput, error) {
	out := &readinessOutput{Status: http.StatusOK, Body: s.check()}
	if out.Body.Status != healthy {
		out.Status = http.StatusServiceUnavailable
	}
	return out, nil
}

// checkMetrics is a Prometheus collector of the failing checks. Collect runs the checks, so the metric does not
// depend on requests to GET /readyz.
type checkMetrics struct{ *server }

var checkFailing = prometheus.NewDesc("odometer_check_failing", "1 while a check of GET /readyz fails, 0 while it does not.", []string{"check"}, nil)

func (checkMetrics) Describe(all chan<- *prometheus.Desc) { all <- checkFailing }

func (m checkMetrics) Collect(all chan<- prometheus.Metric) {
	result := m.check()
	for _, c := range m.checks(&result) {
		failing := 0.0
		if *c.state != healthy {
			failing = 1
		}
		all <- prometheus.MustNewConstMetric(checkFailing, prometheus.GaugeValue, failing, c.name)
	}
}

// refuseWrites refuses operations that can write unless the clocks of this process and the database agree within
// metering.ClockLimit. Rows are dated, charged and deleted by the clock of the process.
func (s *server) refuseWrites(ctx huma.Context, next func(huma.Context)) {
	if op := ctx.Operation(); op.Method == http.MethodGet && op.Metadata["writes"] != true {
		next(ctx)
		return
	}
	if err := s.ClockOffset.Check(metering.ClockLimit); err != nil {
		s.refuseOperation(ctx, err)
		return
	}
	next(ctx)
}

// writing marks a GET operation that writes to the database.
func writing(op huma.Operation) huma.Operation {
	op.Metadata["writes"] = true
	return op
}
