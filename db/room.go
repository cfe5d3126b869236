package db

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// entries describes rows of which a tenant, customer or plan may have a bounded number. Concurrent requests
// can exceed the bound unless the caller has a lock.
type entries struct {
	count string // SQL that counts the entries of @tenant at @now
	most  int
	noun  string
	fix   string
	now   time.Time // zero if the number does not depend on the time
	of    int64     // id of the customer or plan, @of in count; 0 for entries of the tenant
	owner string    // noun for of; "" for the tenant
}

// ofOwner returns the entries of a customer or plan.
func (e entries) ofOwner(id int64) entries {
	e.of = id
	return e
}

// at returns the entries at an instant.
func (e entries) at(now time.Time) entries {
	e.now = metering.Instant(now)
	return e
}

// Meters and plans include archived ones, because ingest and billing read all meters, plans and prices of a
// tenant at once.
var (
	meterEntries = entries{
		count: `select count(*) from meters where tenant_id = @tenant`,
		most:  metering.MaxMeters, noun: "meters", fix: "change an existing meter, such as an archived one, instead",
	}
	planEntries = entries{
		count: `select count(*) from plans where tenant_id = @tenant`,
		most:  metering.MaxPlans, noun: "plans", fix: "change an existing plan, such as an archived one, instead",
	}
	priceEntries = entries{
		count: `select count(*) from meter_prices where tenant_id = @tenant and customer_id is null and withdrawn_at is null`,
		most:  metering.MaxPrices, noun: "versions of prices in force or scheduled", fix: "withdraw a scheduled one first",
	}
	customerPriceEntries = entries{
		count: `select count(*) from meter_prices where tenant_id = @tenant and customer_id = @of and withdrawn_at is null`,
		owner: "customer", most: metering.MaxPricesOfCustomer, noun: "versions of prices in force or scheduled", fix: "withdraw a scheduled one first",
	}
	customerAlertEntries = entries{
		count: `select count(*) from alerts where tenant_id = @tenant and customer_id = @of and deleted_at is null`,
		owner: "customer", most: metering.MaxAlertsOfCustomer, noun: "alerts", fix: "delete one first",
	}
	customerQuotaEntries = entries{
		count: `select count(*) from quotas where tenant_id = @tenant and customer_id = @of`,
		owner: "customer", most: metering.MaxQuotas, noun: "quotas", fix: "delete one first",
	}
	planQuotaEntries = entries{
		count: `select count(*) from quotas where tenant_id = @tenant and plan_id = @of`,
		owner: "plan", most: metering.MaxQuotas, noun: "quotas", fix: "delete one first",
	}
	webhookEntries = entries{
		count: `select count(*) from webhook_endpoints where tenant_id = @tenant`,
		most:  metering.MaxEndpoints, noun: "webhooks", fix: "delete one first",
	}
	alertEntries = entries{
		count: `select count(*) from alerts where tenant_id = @tenant and deleted_at is null`,
		most:  metering.MaxAlerts, noun: "alerts", fix: "delete one first",
	}
	keyEntries = entries{
		count: `select count(*) from api_keys where tenant_id = @tenant and revoked_at is null and (expires_at is null or expires_at > @now)`,
		most:  metering.MaxAPIKeys, noun: "valid API keys", fix: "revoke one first",
	}
	hmacSecretEntries = entries{
		count: `select count(*) from hmac_secrets where tenant_id = @tenant and revoked_at is null and (expires_at is null or expires_at > @now)`,
		most:  metering.MaxHMACSecrets, noun: "valid HMAC secrets", fix: "revoke one first",
	}
	memberEntries = entries{
		count: `
			select
			  (select count(*) from members where tenant_id = @tenant and removed_at is null) +
			  (select count(*) from invitations
			    where tenant_id = @tenant and member_id is null and accepted_at is null and revoked_at is null and expires_at > @now)`,
		most: metering.MaxMembers, noun: "members and pending invitations", fix: "remove or revoke one first",
	}
)

// requireRoom returns CodeConflict if the owner has the maximum of entries.
func requireRoom(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, e entries) error {
	var have int
	err := tx.QueryRow(ctx, e.count, pgx.NamedArgs{"tenant": tenant, "now": e.now, "of": e.of}).Scan(&have)
	if err == nil && have >= e.most {
		err = metering.Errorf(metering.CodeConflict, "the %s already has %d %s, the maximum; %s", cmp.Or(e.owner, "tenant"), have, e.noun, e.fix)
	}
	return err
}
