package pg

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Limit is the maximum number of rows of one kind, such as meters, that a tenant, customer or plan may have.
// Concurrent requests can exceed the maximum unless the caller holds a lock.
type Limit struct {
	Count string // SQL that counts the rows of @tenant at @now
	Most  int
	Noun  string
	Fix   string
	now   time.Time // zero if the number does not depend on the time
	of    int64     // id of the customer or plan, @of in Count; 0 for rows of the tenant
	Owner string    // noun for the customer or plan; "" for the tenant
}

// OfOwner returns l for one customer or plan.
func (l Limit) OfOwner(id int64) Limit {
	l.of = id
	return l
}

// At returns l for the number of rows at an instant.
func (l Limit) At(now time.Time) Limit {
	l.now = metering.Instant(now)
	return l
}

// RequireRoom returns CodeConflict if the tenant, customer or plan already has the maximum number of rows.
func RequireRoom(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, l Limit) error {
	var have int
	err := tx.QueryRow(ctx, l.Count, pgx.NamedArgs{"tenant": tenant, "now": l.now, "of": l.of}).Scan(&have)
	if err == nil && have >= l.Most {
		err = metering.Errorf(metering.CodeConflict, "the %s already has %d %s, the maximum; %s", cmp.Or(l.Owner, "tenant"), have, l.Noun, l.Fix)
	}
	return err
}
