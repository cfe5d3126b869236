package api

import (
	"context"
	"time"

	"go.temporal.io/sdk/client"
)

type healthOutput struct {
	Body struct {
		Status string `json:"status" enum:"ok"`
	}
}

func (s *server) health(context.Context, *struct{}) (*healthOutput, error) {
	out := new(healthOutput)
	out.Body.Status = "ok"
	return out, nil
}

type readinessOutput struct {
	Status int
	Body   struct {
		Status   string `json:"status" enum:"ok,unavailable"`
		Database string `json:"database" enum:"ok,unavailable,not_migrated"`
		Temporal string `json:"temporal" enum:"ok,unavailable" doc:"Ingest and queries go on without it"`
	}
}

// readiness fails when events could not be stored or usage not be read.
func (s *server) readiness(ctx context.Context, _ *struct{}) (*readinessOutput, error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	out := &readinessOutput{Status: 200}
	out.Body.Status, out.Body.Database, out.Body.Temporal = "ok", "ok", "ok"
	migrated, err := s.Store.Migrated(ctx)
	switch {
	case err != nil:
		out.Body.Database = "unavailable"
	case !migrated:
		out.Body.Database = "not_migrated"
	}
	if out.Body.Database != "ok" {
		out.Status, out.Body.Status = 503, "unavailable"
	}
	if _, err := s.Temporal.CheckHealth(ctx, &client.CheckHealthRequest{}); err != nil {
		out.Body.Temporal = "unavailable"
	}
	return out, nil
}
