package pg

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Entries describes a kind of rows, such as the meters of a tenant, and the maximum number that a tenant, customer
// or plan may have. Concurrent requests can exceed the maximum unless the caller holds a lock.
type Entries struct {
	Count string // SQL that counts the entries of @tenant at @now
	Most  int
	Noun  string
	Fix   string
	now   time.Time // zero if the number does not depend on the time
	of    int64     // id of the customer or plan, @of in Count; 0 for entries of the tenant
	Owner string    // noun for the customer or plan; "" for the tenant
}

// OfOwner returns e for one customer or plan.
func (e Entries) OfOwner(id int64) Entries {
	e.of = id
	return e
}

// At returns e for the number of entries at an instant.
func (e Entries) At(now time.Time) Entries {
	e.now = metering.Instant(now)
	return e
}

// RequireRoom returns CodeConflict if the tenant, customer or plan already has the maximum number of entries.
func RequireRoom(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, e Entries) error {
	var have int
	err := tx.QueryRow(ctx, e.Count, pgx.NamedArgs{"tenant": tenant, "now": e.now, "of": e.of}).Scan(&have)
	if err == nil && have >= e.Most {
		err = metering.Errorf(metering.CodeConflict, "the %s already has %d %s, the maximum; %s", cmp.Or(e.Owner, "tenant"), have, e.Noun, e.Fix)
	}
	return err
}
