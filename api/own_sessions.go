package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/metering"
)

type ownSession struct {
	ID        string    `json:"id" format:"uuid"`
	CreatedAt time.Time `json:"created_at" doc:"Time of the sign-in"`
	ExpiresAt time.Time `json:"expires_at"`
	Current   bool      `json:"current" doc:"Whether the request uses this session"`
}

type ownSessionsOutput struct{ Body List[ownSession] }

func (s *server) registerOwnSessions() {
	huma.Register(s.api, get("list-sessions", "/v1/auth/sessions", OwnSession, "List your sessions",
		"Lists your active sessions in this tenant, newest first."), s.listSessions)
	huma.Register(s.api, remove("end-session", "/v1/auth/sessions/{id}", OwnSession, "End one of your sessions",
		"The session is invalid on every replica as soon as the response is sent. You can end only your own sessions."), s.endSession)
}

// listSessions lists the live sessions of the calling member in this tenant.
func (s *server) listSessions(ctx context.Context, _ *struct{}) (*ownSessionsOutput, error) {
	who, err := memberOf(ctx)
	if err != nil {
		return nil, err
	}
	live, err := s.Store.Sessions.Live(ctx, who.Tenant.ID, who.Member.ID, s.Now())
	if err != nil {
		return nil, err
	}
	list := List[ownSession]{Data: []ownSession{}}
	for _, one := range live {
		list.Data = append(list.Data, ownSession{one.ID.String(), one.CreatedAt.UTC(), one.ExpiresAt.UTC(), one.ID == who.Session.ID})
	}
	return &ownSessionsOutput{list}, nil
}

type endSessionInput struct {
	ID string `path:"id" maxLength:"36"`
}

type endedOutput struct {
	Body struct {
		Ended bool `json:"ended"`
	}
}

func (s *server) endSession(ctx context.Context, in *endSessionInput) (*endedOutput, error) {
	who, err := memberOf(ctx)
	if err != nil {
		return nil, err
	}
	id, err := uuid.Parse(in.ID)
	if err != nil {
		return nil, metering.Errorf(metering.CodeNotFound, "there is no such session")
	}
	if err := s.Store.Sessions.End(ctx, who.Actor, access.SessionName{Tenant: who.Tenant.ID, Member: who.Member.ID, Session: id}); err != nil {
		return nil, err
	}
	out := new(endedOutput)
	out.Body.Ended = true
	return out, nil
}
