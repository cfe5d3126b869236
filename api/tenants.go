package api

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

type tenant struct {
	ID                string                  `json:"id" example:"ten_1"`
	Name              string                  `json:"name"`
	Timezone          string                  `json:"timezone" example:"Europe/Zurich" doc:"Days, months and billing periods are its local ones"`
	Currency          string                  `json:"currency" example:"USD"`
	GraceHours        int                     `json:"grace_hours" doc:"How long after its end a billing period still takes usage"`
	LatePolicy        metering.LatePolicy     `json:"late_policy" doc:"Whether usage for a closed period is billed as an adjustment or only shown"`
	RequestsPerMinute int                     `json:"requests_per_minute" doc:"Requests with events, at most the ceiling that the operators have set"`
	Strict            bool                    `json:"strict" doc:"Whether events with unknown fields, of customers that do not exist, and of event types that no meter counts, are rejected"`
	KeyConflicts      metering.ConflictPolicy `json:"idempotency_conflicts" doc:"accept: an event whose idempotency_key was used with other content is accepted, adds nothing and is kept as a conflict; reject: it is rejected"`
	V1BodylessWrites  bool                    `json:"v1_bodyless_writes" doc:"Whether requests without a body that are signed in v1 may do more than read"`
	InvoiceHold       invoiceHoldSettings     `json:"invoice_hold"`
	CreatedAt         time.Time               `json:"created_at"`
}

type invoiceHoldSettings struct {
	Enabled       bool `json:"enabled" doc:"Whether a provider's draft invoices of usage are held until what was reported is counted and compared"`
	DeadlineHours int  `json:"deadline_hours" doc:"How long after the grace a held invoice becomes final by itself, whatever was found"`
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
	Enabled       *bool `json:"enabled,omitempty" doc:"Of providers that make invoices"`
	DeadlineHours *int  `json:"deadline_hours,omitempty" minimum:"1" maximum:"720" doc:"At most 720 together with grace_hours. What is held already keeps its deadline"`
}

type updateTenantInput struct {
	Body struct {
		Name              *string                  `json:"name,omitempty" minLength:"1" maxLength:"255"`
		Timezone          *string                  `json:"timezone,omitempty" doc:"Every meter is counted anew; until that is done it answers with windows of the current zone. 409 once a customer has a billing period. If a begun billing period with charges gets another start or end, it returns 409 confirmation_required"`
		Currency          *string                  `json:"currency,omitempty" doc:"ISO 4217; of prices that do not name their own"`
		GraceHours        *int                     `json:"grace_hours,omitempty" minimum:"0" maximum:"720"`
		LatePolicy        *metering.LatePolicy     `json:"late_policy,omitempty"`
		RequestsPerMinute *int                     `json:"requests_per_minute,omitempty" minimum:"1" maximum:"2147483647" doc:"422 above the ceiling that the operators have set, 60000 by default"`
		Strict            *bool                    `json:"strict,omitempty" doc:"true: an event with a field that no event has, of a customer that does not exist, or of an event type that no meter counts, is rejected. false: the field is ignored with a warning, the event makes the customer, and it is counted once a meter exists"`
		KeyConflicts      *metering.ConflictPolicy `json:"idempotency_conflicts,omitempty" doc:"reject: an event whose idempotency_key was used for another customer or with other content is rejected. accept: it is accepted and adds nothing; GET /v1/events/conflicts shows it"`
		V1BodylessWrites  *bool                    `json:"v1_bodyless_writes,omitempty" doc:"true: whoever sees such a request, which signs neither its method nor its path, may make any other of it. Sign in v2 instead"`
		InvoiceHold       *invoiceHoldChange       `json:"invoice_hold,omitempty"`
		Confirm
	}
}

func (s *server) updateTenant(ctx context.Context, in *updateTenantInput) (*tenantOutput, error) {
	if n := in.Body.RequestsPerMinute; n != nil && *n > s.MaxRequestsPerMinute {
		return nil, metering.Invalid("body.requests_per_minute", "must be at most %d, the ceiling that the operators have set", s.MaxRequestsPerMinute)
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
			impact: func(now time.Time) (db.Impact, error) {
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
