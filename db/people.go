package db

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// People are those who sign in with an e-mail and a password. A row never
// changes: another password is another person, of whom one becomes the member.
type People struct{ pool *pool }

// maxMemberships bounds how many tenants one person chooses among.
const maxMemberships = 200

// Memberships returns where the person is a member: in the tenant or, where it is
// 0, in any. It is how one who signs in finds their tenant.
func (s People) Memberships(ctx context.Context, tenant metering.TenantID, email string, passwordHash []byte) ([]metering.Membership, error) {
	rows, err := s.pool.Query(ctx, `
		select `+memberColumns+`, `+tenantColumns+`
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
		return nil, coded(err)
	}
	memberships, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m metering.Membership, err error) {
		return m, row.Scan(append(memberFields(&m.Member), tenantFields(&m.Tenant)...)...)
	})
	return memberships, coded(err)
}

// person returns who has that e-mail and password, and keeps them until the end of
// the transaction. Without a password it is nobody.
func person(ctx context.Context, tx pgx.Tx, email string, passwordHash []byte) (*metering.PersonID, error) {
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

// forget deletes who is a member of no tenant any longer.
func forget(ctx context.Context, tx pgx.Tx, former *metering.PersonID) error {
	if former == nil {
		return nil
	}
	// Somebody may be about to become one; the statement that follows sees it.
	if _, err := tx.Exec(ctx, `select from people where id = $1 for update`, former); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `delete from people p where p.id = $1 and not exists (select from members m where m.person_id = p.id)`, former)
	return err
}
