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

// requireRoom returns CodeConflict if the owner has the maximum of entries.
func requireRoom(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, e entries) error {
	var have int
	err := tx.QueryRow(ctx, e.count, pgx.NamedArgs{"tenant": tenant, "now": e.now, "of": e.of}).Scan(&have)
	if err == nil && have >= e.most {
		err = metering.Errorf(metering.CodeConflict, "the %s already has %d %s, the maximum; %s", cmp.Or(e.owner, "tenant"), have, e.noun, e.fix)
	}
	return err
}
