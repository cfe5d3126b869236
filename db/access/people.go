package access

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// People stores the persons that sign in with an e-mail and a password. A row never changes: a new
// password creates another row, to which the member then refers.
type People struct{ pool *pg.Pool }

// maxMemberships is the maximum number of tenants that a person can choose from at sign-in.
const maxMemberships = 200

// Memberships returns the person's memberships in the tenant, or in all tenants if tenant is 0. Sign-in
// uses it to find the person's tenant. It returns at most maxMemberships.
func (s People) Memberships(ctx context.Context, tenant metering.TenantID, email string, passwordHash []byte) ([]metering.Membership, error) {
	rows, err := s.pool.Query(ctx, `
		select `+memberColumns+`, `+TenantColumns+`
		from people p
		join members m on m.person_id = p.id
		join tenants t on t.id = m.tenant_id
		where p.email = $2
		  and p.password_hash = $3
		  and m.removed_at is null
		  and ($1 = 0 or m.tenant_id = $1)
		order by m.tenant_id
		limit $4`, tenant, metering.FoldEmail(email), passwordHash, maxMemberships)
	if err != nil {
		return nil, pg.Coded(err)
	}
	memberships, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m metering.Membership, err error) {
		return m, row.Scan(append(memberFields(&m.Member), TenantFields(&m.Tenant)...)...)
	})
	return memberships, pg.Coded(err)
}

// ensurePerson returns the id of the person with an e-mail and a password, and creates the person if necessary.
// It locks the person until the end of the transaction. It returns nil if there is no password.
func ensurePerson(ctx context.Context, tx pgx.Tx, email string, passwordHash []byte) (*metering.PersonID, error) {
	if passwordHash == nil {
		return nil, nil //nolint:nilnil // a member may have no password
	}
	var id metering.PersonID
	err := tx.QueryRow(ctx, `
		insert into people (email, password_hash)
		values ($1, $2)
		on conflict (email, password_hash) do update set email = excluded.email
		returning id`, metering.FoldEmail(email), passwordHash).Scan(&id)
	return &id, err
}

// deleteUnusedPerson deletes a person if no member of any tenant refers to it any more.
func deleteUnusedPerson(ctx context.Context, tx pgx.Tx, former *metering.PersonID) error {
	if former == nil {
		return nil
	}
	// Another transaction may be making the person a member. This statement waits for that transaction, and
	// the next statement sees the member.
	if _, err := tx.Exec(ctx, `select from people where id = $1 for update`, former); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `delete from people p where p.id = $1 and not exists (select from members m where m.person_id = p.id)`, former)
	return err
}
