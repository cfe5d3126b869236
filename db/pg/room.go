package pg

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Entries describes rows of which a tenant, customer or plan may have a bounded number. Concurrent requests
// can exceed the bound unless the caller has a lock.
type Entries struct {
	Count string // SQL that counts the entries of @tenant at @now
	Most  int
	Noun  string
	Fix   string
	now   time.Time // zero if the number does not depend on the time
	of    int64     // id of the customer or plan, @of in count; 0 for entries of the tenant
	Owner string    // noun for of; "" for the tenant
}

// OfOwner returns the entries of a customer or plan.
func (e Entries) OfOwner(id int64) Entries {
	e.of = id
	return e
}

// At returns the entries at an instant.
func (e Entries) At(now time.Time) Entries {
	e.now = metering.Instant(now)
	return e
}

// RequireRoom returns CodeConflict if the owner has the maximum of entries.
func RequireRoom(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, e Entries) error {
	var have int
	err := tx.QueryRow(ctx, e.Count, pgx.NamedArgs{"tenant": tenant, "now": e.now, "of": e.of}).Scan(&have)
	if err == nil && have >= e.Most {
		err = metering.Errorf(metering.CodeConflict, "the %s already has %d %s, the maximum; %s", cmp.Or(e.Owner, "tenant"), have, e.Noun, e.Fix)
	}
	return err
}
