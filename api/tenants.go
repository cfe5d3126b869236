package api

import (
	"context"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

type tenant struct {
	ID                string                  `json:"id" example:"ten_1"`
	Name              string                  `json:"name"`
	Timezone          string                  `json:"timezone" example:"Europe/Zurich" doc:"IANA time zone of days, months and billing periods"`
	Currency          string                  `json:"currency" example:"USD"`
	GraceHours        int                     `json:"grace_hours" doc:"Hours from the end of a billing period to its closing. Events that arrive after the closing are late usage"`
	LatePolicy        metering.LatePolicy     `json:"late_policy" doc:"'adjust' bills late usage as an adjustment in another period. 'report' shows late usage and does not bill it"`
	RequestsPerMinute int                     `json:"requests_per_minute" doc:"Maximum number of requests with events in a minute"`
	Strict            bool                    `json:"strict" doc:"Whether to reject an event with an unknown field, customer or event type, or without a usable value for a meter"`
	KeyConflicts      metering.ConflictPolicy `json:"idempotency_conflicts" doc:"Treatment of an event with an idempotency_key that was used with other content. 'accept' stores the event as a conflict and does not count it. 'reject' rejects the event"`
	V1BodylessWrites  bool                    `json:"v1_bodyless_writes" doc:"Whether requests without a body that are signed in v1 can write"`
	InvoiceHold       invoiceHoldSettings     `json:"invoice_hold"`
	CreatedAt         time.Time               `json:"created_at"`
}

type invoiceHoldSettings struct {
	Enabled       bool `json:"enabled" doc:"Whether a renewal's draft invoice with usage is held until it agrees with the reports, is released or reaches its deadline"`
	DeadlineHours int  `json:"deadline_hours" doc:"Hours after the grace at which the provider finalizes a held invoice that was not released"`
}

func (s *server) registerTenants() {
	huma.Register(s.api, get("get-tenant", "/v1/tenant", TenantManage, "Get the tenant's settings",
		"Returns the time zone, the currency, the rules for late usage and invoice holds, the limits, and the rules for unknown and conflicting events."), s.getTenant)
	huma.Register(s.api, heavy(patch("update-tenant", "/v1/tenant", TenantManage, "Update the tenant's settings",
		"Updates the fields that the body contains and keeps the other fields. A new time zone or grace applies to billing periods that are not closed.\n\n"+
			howToConfirm)), s.updateTenant)
}

func (s *server) showTenant(t metering.Tenant) tenant {
	return tenant{
		ID: t.ID.String(), Name: t.Name, Timezone: t.Timezone, Currency: t.Currency, GraceHours: int(t.Grace.Hours()),
		LatePolicy: t.LatePolicy, RequestsPerMinute: min(t.RequestsPerMinute, s.MaxRequestsPerMinute), Strict: t.Strict, KeyConflicts: t.KeyConflicts, V1BodylessWrites: t.V1BodylessWrites, CreatedAt: t.CreatedAt.UTC(),
		InvoiceHold: invoiceHoldSettings{t.InvoiceHold.Enabled, int(t.InvoiceHold.Deadline.Hours())},
	}
}

type tenantOutput struct{ Body tenant }

func (s *server) getTenant(ctx context.Context, _ *struct{}) (*tenantOutput, error) {
	return &tenantOutput{s.showTenant(principalOf(ctx).Tenant)}, nil
}

type invoiceHoldChange struct {
	Enabled       *bool `json:"enabled,omitempty" doc:"Whether a renewal's draft invoice with usage is held. Only for providers that make invoices"`
	DeadlineHours *int  `json:"deadline_hours,omitempty" minimum:"1" maximum:"720" doc:"Hours after the grace at which the provider finalizes a held invoice that was not released. At most 720 together with grace_hours. Current holds keep their deadlines"`
}

type updateTenantInput struct {
	Body struct {
		Name              *string                  `json:"name,omitempty" minLength:"1" maxLength:"255"`
		Timezone          *string                  `json:"timezone,omitempty" doc:"IANA time zone. After a change, meters count all usage again. Until that is complete, meters use the previous time zone. Returns 409 if a billing period of a customer is stored. Returns 409 confirmation_required if the dates of begun billing periods would change"`
		Currency          *string                  `json:"currency,omitempty" doc:"ISO 4217 code. Applies to prices without a currency that follow or replace no other price"`
		GraceHours        *int                     `json:"grace_hours,omitempty" minimum:"0" maximum:"720"`
		LatePolicy        *metering.LatePolicy     `json:"late_policy,omitempty"`
		RequestsPerMinute *int                     `json:"requests_per_minute,omitempty" minimum:"1" maximum:"2147483647" doc:"Maximum number of requests with events in a minute. At most the limit set by the operators, 60000 by default"`
		Strict            *bool                    `json:"strict,omitempty" doc:"'true' rejects an event with an unknown field, customer or event type, or without a usable value for a meter. 'false' ignores the field with a warning, creates the customer, and stores the event, which a later meter for its type counts"`
		KeyConflicts      *metering.ConflictPolicy `json:"idempotency_conflicts,omitempty" doc:"Treatment of an event with an idempotency_key that was used for another customer or other content. 'reject' rejects the event. 'accept' does not count it, and GET /v1/events/conflicts lists it"`
		V1BodylessWrites  *bool                    `json:"v1_bodyless_writes,omitempty" doc:"Whether requests without a body that are signed in v1 can write. Not recommended: an observer can reuse such a signature for another method or path. Sign in v2 instead"`
		InvoiceHold       *invoiceHoldChange       `json:"invoice_hold,omitempty"`
		Confirm
	}
}

func (s *server) updateTenant(ctx context.Context, in *updateTenantInput) (*tenantOutput, error) {
	if n := in.Body.RequestsPerMinute; n != nil && *n > s.MaxRequestsPerMinute {
		return nil, metering.Invalid("body.requests_per_minute", "must be at most %d, the limit set by the operators", s.MaxRequestsPerMinute)
	}
	change := db.TenantChange{
		Name: in.Body.Name, Timezone: in.Body.Timezone, Currency: in.Body.Currency,
		LatePolicy: in.Body.LatePolicy, RequestsPerMinute: in.Body.RequestsPerMinute, Strict: in.Body.Strict, KeyConflicts: in.Body.KeyConflicts,
		V1BodylessWrites: in.Body.V1BodylessWrites,
	}
	if in.Body.GraceHours != nil {
		grace := time.Duration(*in.Body.GraceHours) * time.Hour
		change.Grace = &grace
	}
	if hold := in.Body.InvoiceHold; hold != nil {
		change.InvoiceHold = hold.Enabled
		if hold.DeadlineHours != nil {
			deadline := time.Duration(*hold.DeadlineHours) * time.Hour
			change.HoldDeadline = &deadline
		}
	}
	who := principalOf(ctx)
	var (
		updated     metering.Tenant
		backfilling []metering.MeterVersionID
	)
	update := func(tenants db.Tenants) (err error) {
		updated, backfilling, err = tenants.Update(ctx, who.Tenant.ID, who.Actor, change)
		return err
	}
	var err error
	if zone := change.Timezone; zone != nil {
		err = s.writeCatalog(ctx, catalogWrite{
			change: struct {
				Operation string
				Change    db.TenantChange
			}{"update-tenant", change},
			subject: "The time zone", confirm: in.Body.Token,
			impact: func(now time.Time) (ledger.Impact, error) {
				return s.Store.Ledger.TimezoneImpact(ctx, who.Tenant.ID, *zone, now)
			},
			write: func(within db.Catalog) error { return update(within.Tenants) },
		})
	} else {
		err = update(s.Store.Tenants)
	}
	if err != nil {
		return nil, err
	}
	for _, version := range backfilling {
		s.startBackfill(ctx, version)
	}
	return &tenantOutput{s.showTenant(updated)}, nil
}
