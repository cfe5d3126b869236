package api

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

type auditEntry struct {
	ID       string         `json:"id" example:"aud_99"`
	At       time.Time      `json:"at"`
	Actor    metering.Actor `json:"actor" example:"key_12" doc:"Who: a credential or a member, or operator for the command line"`
	Action   string         `json:"action" example:"meter.create"`
	Resource string         `json:"resource" example:"mtr_7" doc:"The id of what changed"`
	Reason   string         `json:"reason" example:"the receiver is being moved" doc:"Why, in the actor's words; empty where they were not asked"`
}

func showAuditEntry(e metering.AuditEntry) auditEntry {
	return auditEntry{e.ID.String(), e.At.UTC(), e.Actor, e.Action, e.Resource, e.Reason}
}

type auditLogOutput struct{ Body List[auditEntry] }

func (s *server) auditLog(ctx context.Context, in *struct{ Paging }) (*auditLogOutput, error) {
	var before metering.AuditID
	if err := s.readPageToken(ctx, in.PageToken, &before); err != nil {
		return nil, err
	}
	entries, err := s.Store.AuditLog.List(ctx, principalOf(ctx).Tenant.ID, before, in.PageSize+1)
	if err != nil {
		return nil, err
	}
	cursorOf := func(e metering.AuditEntry) metering.AuditID { return e.ID }
	return &auditLogOutput{listOf(ctx, s, entries, in.PageSize, showAuditEntry, cursorOf)}, nil
}
