package db

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// told holds the audited fields of a resource, by their names in the API.
type told map[string]any

// personal is a value that may identify a person, or that a tenant wrote about a customer. Entries are
// immutable, so they store a digest of the value under the log's key. A reader of the log cannot guess the
// value, and erased data does not survive in the log.
type personal string

// secret reports whether a secret is set. The log never stores the secret.
type secret bool

// auditChange notes an entry with the fields that differ between before and after. before is nil for a new
// resource, after for a deleted one.
func auditChange(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, action, resource string, before, after told) error {
	return note(ctx, tx, auditedEntry{
		tenant: tenant, AuditEntry: metering.AuditEntry{Actor: actor, Action: action, Resource: resource},
		before: differing(before, after), after: differing(after, before),
	})
}

// decision is an action of an actor on a resource, and the reason that the actor gave.
type decision struct {
	actor                    metering.Actor
	action, resource, reason string
}

// auditDecision is auditChange with the reason that the actor gave.
func auditDecision(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, d decision, before, after told) error {
	return note(ctx, tx, auditedEntry{
		tenant: tenant, AuditEntry: metering.AuditEntry{Actor: d.actor, Action: d.action, Resource: d.resource, Reason: d.reason},
		before: differing(before, after), after: differing(after, before),
	})
}

// differing returns the fields of one that other lacks, or that have another value there.
func differing(one, other told) told {
	var fields told
	for name, value := range one {
		if former, had := other[name]; had && reflect.DeepEqual(value, former) {
			continue
		}
		if fields == nil {
			fields = told{}
		}
		fields[name] = value
	}
	return fields
}

// json renders fields. It returns nil if fields is nil.
func (k auditKey) json(tenant metering.TenantID, fields told) (json.RawMessage, error) {
	if fields == nil {
		return nil, nil
	}
	rendered := make(map[string]any, len(fields))
	for name, value := range fields {
		switch v := value.(type) {
		case personal:
			mac := k.mac([]byte("personal"), []byte(tenant.String()), []byte(name), []byte(v))
			rendered[name] = map[string]string{"digest": hex.EncodeToString(mac[:16])}
		case secret:
			rendered[name] = map[string]bool{"set": bool(v)}
		default:
			rendered[name] = value
		}
	}
	return json.Marshal(rendered)
}

func tellTenant(t metering.Tenant) told {
	return told{
		"name": t.Name, "timezone": t.Timezone, "currency": t.Currency, "grace_hours": t.Grace.Hours(), "late_policy": t.LatePolicy,
		"requests_per_minute": t.RequestsPerMinute, "strict": t.Strict, "idempotency_conflicts": t.KeyConflicts, "v1_bodyless_writes": t.V1BodylessWrites,
		"invoice_hold.enabled": t.InvoiceHold.Enabled, "invoice_hold.deadline_hours": t.InvoiceHold.Deadline.Hours(),
	}
}

func tellCustomer(c metering.Customer) told {
	fields := tellLink(c)
	fields["external_id"], fields["name"], fields["metadata"] = personal(c.ExternalID), personal(c.Name), personal(c.Metadata)
	return fields
}

// tellLink returns the provider's customer that is charged for c.
func tellLink(c metering.Customer) told {
	if c.BillingProviderID == nil {
		return told{"billing_provider_id": nil}
	}
	return told{"billing_provider_id": personal(*c.BillingProviderID)}
}

func tellMember(m metering.Member) told {
	return told{"email": personal(m.Email), "name": personal(m.Name), "role": m.Role}
}

func tellInvitation(i metering.Invitation) told {
	fields := told{"email": personal(i.Email), "name": personal(i.Name), "role": i.Role, "expires_at": i.ExpiresAt.UTC(), "token": secret(true)}
	if i.MemberID != nil {
		fields["member_id"] = i.MemberID.String()
	}
	return fields
}

func tellOIDC(o metering.OIDC) told {
	return told{"issuer": o.Issuer, "client_id": o.ClientID, "client_secret": secret(o.SealedSecret != nil)}
}

func tellPlan(p metering.Plan) told { return told{"slug": p.Slug, "name": p.Name} }

// state returns the single field of a resource that changes from one state to another.
func state[T ~string | ~bool](is T) told { return told{"state": is} }

func tellMeter(m metering.Meter) told {
	return told{
		"slug": m.Slug, "event_type": m.EventType, "name": m.Name, "usage_scale": m.UsageScale,
		"unit": m.Unit, "aggregation": m.Version.Aggregation, "value_property": m.Version.ValueProperty,
		"filters": notNil(m.Version.Filters), "group_by": notNil(m.Version.GroupBy),
	}
}

// tellPrice returns the price with its terms exactly as stored.
func tellPrice(p billing.Price) told {
	fields := told{"version": p.Version, "effective_from": nil, "terms": nil} // null: from the beginning, inherited
	if !p.Inherits {
		fields["terms"] = json.RawMessage(p.JSON())
	}
	if !p.EffectiveFrom.IsZero() {
		fields["effective_from"] = p.EffectiveFrom.UTC()
	}
	if p.PlanID != 0 {
		fields["plan_id"] = p.PlanID.String()
	}
	if p.CustomerID != 0 {
		fields["customer_id"] = p.CustomerID.String()
	}
	return fields
}

func tellCredential(name string, scope metering.Scope, lastFour string, expiresAt *time.Time) told {
	return told{"name": name, "scope": scope, "last_four": lastFour, "expires_at": expiresAt, "secret": secret(true)}
}

func tellEndpoint(e metering.Endpoint) told {
	return told{
		"url": personal(e.URL), "description": e.Description, "event_types": e.EventTypes, "enabled": e.DisabledAt == nil, "secret": secret(e.Sealed != nil),
	}
}

func tellAlert(a metering.Alert) told {
	return told{
		"name": personal(a.Name), "type": a.Type, "customer": personal(a.ExternalID), "plan": a.Plan, "meter": a.Meter, "grouped": a.Group != nil,
		"thresholds": a.Thresholds, "minutes": a.Minutes, "currency": a.Currency, "enabled": a.Enabled,
	}
}

func tellProvider(p metering.Provider) told {
	return told{
		"kind": p.Kind, "account": p.Account, "livemode": p.Livemode, "address": personal(p.Address), "bills": p.Bills, "prices": p.Mapping,
		"secret": secret(p.SealedSecret != nil), "secret_last_four": p.LastFour,
		"webhook_secret": secret(p.SealedWebhookSecret != nil), "webhook_secret_last_four": p.WebhookLastFour,
	}
}

func tellAutoSync(a metering.AutoSync) told {
	return told{"enabled": a.Enabled, "schedule": a.Schedule, "paused": a.Paused}
}
