package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/metering"
)

type auditEntry struct {
	ID        string          `json:"id" example:"aud_99" doc:"Number of the entry in the tenant's log, from 1"`
	At        time.Time       `json:"at"`
	Actor     metering.Actor  `json:"actor" example:"key_12" doc:"A credential or a member. Otherwise 'operator' for the command line and the Temporal UI, 'schedule' for the service itself, and 'stranger' for an unauthenticated caller"`
	Action    string          `json:"action" example:"meter.create"`
	Resource  string          `json:"resource" example:"mtr_7" doc:"Id of the changed resource. Some actions append a second id or a state, such as 'per_1 mtr_7'"`
	Reason    string          `json:"reason" example:"the receiver is being moved" doc:"Reason given by the actor. Empty if the action requires no reason"`
	Address   string          `json:"address" example:"192.0.2.7" doc:"Address of the client. For IPv6, its /64 network. Empty if there was no request"`
	RequestID string          `json:"request_id" doc:"X-Request-Id of the request. Empty if there was no request"`
	Before    json.RawMessage `json:"before,omitempty" doc:"The changed fields before the change. A secret is '{\"set\": true}'. Personal data is a digest"`
	After     json.RawMessage `json:"after,omitempty" doc:"The changed fields after the change. For an action that changes no field, the request"`
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
	Action    string   `query:"action" maxLength:"64" example:"api_key." doc:"An action, or the beginning of its name"`
	Resource  string   `query:"resource" maxLength:"128" example:"mtr_7" doc:"The complete resource, or its first words: per_1 also matches 'per_1 mtr_7'. A part of an id matches nothing"`
	RequestID string   `query:"request_id" maxLength:"128"`
	Start     SentTime `query:"start" doc:"Entries at or after this time"`
	End       SentTime `query:"end" doc:"Entries before this time"`
}

func (in *auditLogInput) filter() (f access.AuditFilter, err error) {
	for _, q := range []struct{ name, text string }{
		{"actor", in.Actor}, {"action", in.Action}, {"resource", in.Resource}, {"request_id", in.RequestID},
	} {
		if !storable(q.text) {
			return f, metering.Invalid("query."+q.name, "must be UTF-8 without NUL")
		}
	}
	return access.AuditFilter{
		Actor: metering.Actor(in.Actor), Action: in.Action, Resource: in.Resource, RequestID: in.RequestID, Start: in.Start.pointer(), End: in.End.pointer(),
	}, nil
}

type auditLogOutput struct{ Body List[auditEntry] }

func (s *server) registerAuditLog() {
	huma.Register(s.api, get("get-audit-log", "/v1/audit-log", KeysManage, "List the audit log",
		"Entries are listed newest first. Entries contain the actor, the action, the changed fields, the time and the address.\n\n"+
			"- The log also records refused requests, exports of events, requested syncs and tests of webhooks.\n"+
			"- Each process records at most 20 refusals of a kind in a minute, and then the number of further refusals."), s.auditLog)
}

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
