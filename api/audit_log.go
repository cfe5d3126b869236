package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

type auditEntry struct {
	ID        string          `json:"id" example:"aud_99" doc:"Its number in the tenant's log: 1, 2, 3, …"`
	At        time.Time       `json:"at"`
	Actor     metering.Actor  `json:"actor" example:"key_12" doc:"Who: a credential or a member; operator for the command line and the Temporal UI; schedule for the service itself; stranger for whoever has not proved who they are"`
	Action    string          `json:"action" example:"meter.create"`
	Resource  string          `json:"resource" example:"mtr_7" doc:"The id of what changed"`
	Reason    string          `json:"reason" example:"the receiver is being moved" doc:"Why, in the actor's words; empty where they were not asked"`
	Address   string          `json:"address" example:"192.0.2.7" doc:"Where the request came from, of IPv6 the /64 network; empty where there was no request"`
	RequestID string          `json:"request_id" doc:"X-Request-Id of the request; empty where there was none"`
	Before    json.RawMessage `json:"before,omitempty" doc:"The fields that were changed, as they were. A secret is {\"set\": true}, what is personal a digest under a key"`
	After     json.RawMessage `json:"after,omitempty" doc:"The same fields, as they are since; of what changes nothing, what was asked for"`
}

func showAuditEntry(e metering.AuditEntry) auditEntry {
	return auditEntry{
		ID: e.ID.String(), At: e.At.UTC(), Actor: e.Actor, Action: e.Action, Resource: e.Resource, Reason: e.Reason,
		Address: e.Address, RequestID: e.RequestID, Before: e.Before, After: e.After,
	}
}

type auditLogInput struct {
	Paging

	Actor     string   `query:"actor" maxLength:"64" example:"key_12"`
	Action    string   `query:"action" maxLength:"64" example:"api_key." doc:"An action, or how it begins"`
	Resource  string   `query:"resource" maxLength:"128" example:"mtr_7" doc:"The whole id, or the first of several"`
	RequestID string   `query:"request_id" maxLength:"128"`
	Start     SentTime `query:"start" doc:"Entries from then on"`
	End       SentTime `query:"end" doc:"Entries before then"`
}

func (in *auditLogInput) filter() (f db.AuditFilter, err error) {
	for _, q := range []struct{ name, text string }{
		{"actor", in.Actor}, {"action", in.Action}, {"resource", in.Resource}, {"request_id", in.RequestID},
	} {
		if !storable(q.text) {
			return f, metering.Invalid("query."+q.name, "must be UTF-8 without NUL")
		}
	}
	return db.AuditFilter{
		Actor: metering.Actor(in.Actor), Action: in.Action, Resource: in.Resource, RequestID: in.RequestID, Start: in.Start.pointer(), End: in.End.pointer(),
	}, nil
}

type auditLogOutput struct{ Body List[auditEntry] }

func (s *server) auditLog(ctx context.Context, in *auditLogInput) (*auditLogOutput, error) {
	filter, err := in.filter()
	if err != nil {
		return nil, err
	}
	var before metering.AuditID
	if err := s.readPageToken(ctx, in.PageToken, &before); err != nil {
		return nil, err
	}
	entries, err := s.Store.AuditLog.List(ctx, principalOf(ctx).Tenant.ID, filter, before, in.PageSize)
	if err != nil {
		return nil, err
	}
	cursorOf := func(e metering.AuditEntry) metering.AuditID { return e.ID }
	return &auditLogOutput{listOf(ctx, s, entries, showAuditEntry, cursorOf)}, nil
}
