package db

import (
	"context"
	"errors"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/odometer-metering/odometer/metering"
)

// Members are the people of the tenants. One who was removed is kept, because
// the audit log names them, and is invisible to everything here.
type Members struct{ pool beginner }

const memberColumns = `m.id, m.tenant_id, m.email, m.name, m.role, m.password_hash, m.created_at`

func memberFields(m *metering.Member) []any {
	return []any{&m.ID, &m.TenantID, &m.Email, &m.Name, &m.Role, &m.PasswordHash, &m.CreatedAt}
}

// Create makes a member, or answers CodeConflict where the e-mail is a
// member's already, or the tenant has its owner.
func (s Members) Create(ctx context.Context, tenant metering.TenantID, actor metering.Actor, m metering.Member) (created metering.Member, err error) {
	if err := m.Validate(); err != nil {
		return metering.Member{}, err
	}
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			insert into members as m (tenant_id, email, name, role, password_hash, created_by)
			values (@tenant, @email, @name, @role, @password_hash, @actor)
			returning `+memberColumns, pgx.NamedArgs{
			"tenant": tenant, "email": m.Email, "name": m.Name, "role": m.Role, "password_hash": m.PasswordHash, "actor": actor,
		}).Scan(memberFields(&created)...)
		if err != nil {
			return memberConflict(err)
		}
		return audit(ctx, tx, tenant, actor, "member.create", created.ID.String())
	})
	return created, err
}

func memberConflict(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) || pg.Code != stateUniqueViolation {
		return err
	}
	if pg.ConstraintName == "members_owner" {
		return metering.Errorf(metering.CodeConflict, "the tenant has an owner, who can hand over with make-owner").Because(err)
	}
	return metering.Errorf(metering.CodeConflict, "a member with this e-mail exists already").Because(err)
}

var errNoMember = metering.Errorf(metering.CodeNotFound, "there is no such member")

// List returns up to limit members with an id above after, in the order they were made.
func (s Members) List(ctx context.Context, tenant metering.TenantID, after metering.MemberID, limit int) ([]metering.Member, error) {
	rows, err := s.pool.Query(ctx, `
		select `+memberColumns+` from members m
		where m.tenant_id = $1 and m.id > $2 and m.removed_at is null
		order by m.id
		limit $3`, tenant, after, limit)
	if err != nil {
		return nil, coded(err)
	}
	return collectMembers(rows)
}

// WithEmail returns up to two members who can sign in with that e-mail and a
// password: of the tenant or, where it is 0, of any. It is how one who signs
// in finds their tenant.
func (s Members) WithEmail(ctx context.Context, tenant metering.TenantID, email string) ([]metering.Member, error) {
	rows, err := s.pool.Query(ctx, `
		select `+memberColumns+` from members m
		where lower(m.email collate "C") = lower($2 collate "C")
		  and m.removed_at is null
		  and m.password_hash is not null
		  and ($1 = 0 or m.tenant_id = $1)
		limit 2`, tenant, email)
	if err != nil {
		return nil, coded(err)
	}
	return collectMembers(rows)
}

func collectMembers(rows pgx.Rows) ([]metering.Member, error) {
	members, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (m metering.Member, err error) {
		return m, row.Scan(memberFields(&m)...)
	})
	return members, coded(err)
}

// ByEmail returns the tenant's member with that e-mail, or CodeNotFound.
func (s Members) ByEmail(ctx context.Context, tenant metering.TenantID, email string) (m metering.Member, err error) {
	err = s.pool.QueryRow(ctx, `
		select `+memberColumns+` from members m
		where m.tenant_id = $1 and lower(m.email collate "C") = lower($2 collate "C") and m.removed_at is null`,
		tenant, email).Scan(memberFields(&m)...)
	return m, orNoMember(err)
}

// MemberChange is what to change of a member; nil leaves it.
type MemberChange struct {
	Name *string
	Role *metering.Role
}

// Update changes a member. The owner stays one until another is made owner.
func (s Members) Update(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.MemberID, change MemberChange) (updated metering.Member, err error) {
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		role, err := roleOf(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		if change.Role != nil && *change.Role != role && (role == metering.RoleOwner || *change.Role == metering.RoleOwner) {
			return metering.Errorf(metering.CodeConflict, "ownership changes only by make-owner")
		}
		err = tx.QueryRow(ctx, `
			update members m
			set name = coalesce($3, m.name), role = coalesce($4, m.role)
			where m.tenant_id = $1 and m.id = $2
			returning `+memberColumns, tenant, id, change.Name, change.Role).Scan(memberFields(&updated)...)
		if err != nil {
			return err
		}
		return audit(ctx, tx, tenant, actor, "member.update", id.String())
	})
	return updated, err
}

// roleOf returns the role of a member, and keeps it as it is until the end of
// the transaction.
func roleOf(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, id metering.MemberID) (role metering.Role, err error) {
	err = tx.QueryRow(ctx, `
		select role from members where tenant_id = $1 and id = $2 and removed_at is null for update`, tenant, id).Scan(&role)
	return role, orNoMember(err)
}

func orNoMember(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return errNoMember.Because(err)
	}
	return coded(err)
}

// Remove ends a member and every session of theirs, from the moment it returns.
func (s Members) Remove(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.MemberID) error {
	return inTx(ctx, s.pool, func(tx pgx.Tx) error {
		role, err := roleOf(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		if role == metering.RoleOwner {
			return metering.Errorf(metering.CodeConflict, "the owner cannot be removed: make another member owner first")
		}
		_, err = tx.Exec(ctx, `
			update members set removed_at = now(), password_hash = null where tenant_id = $1 and id = $2`, tenant, id)
		if err != nil {
			return err
		}
		if err := endSessions(ctx, tx, tenant, id, uuid.Nil); err != nil {
			return err
		}
		return audit(ctx, tx, tenant, actor, "member.remove", id.String())
	})
}

// MakeOwner hands the tenant over to one of its members; the owner before, if
// there is one, becomes an admin.
func (s Members) MakeOwner(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.MemberID) (made metering.Member, err error) {
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		// One at a time for a tenant: two would each demote the same owner.
		if _, err := tx.Exec(ctx, `select 1 from tenants where id = $1 for no key update`, tenant); err != nil {
			return err
		}
		if _, err := roleOf(ctx, tx, tenant, id); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			update members set role = $3
			where tenant_id = $1 and id <> $2 and role = $4 and removed_at is null`, tenant, id, metering.RoleAdmin, metering.RoleOwner)
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `
			update members m set role = $3
			where m.tenant_id = $1 and m.id = $2
			returning `+memberColumns, tenant, id, metering.RoleOwner).Scan(memberFields(&made)...)
		if err != nil {
			return err
		}
		return audit(ctx, tx, tenant, actor, "member.make_owner", id.String())
	})
	return made, err
}

// SetPassword replaces the password whose hash is current, and ends the
// member's sessions but the one to keep. It answers CodeConflict where the
// password has changed meanwhile.
func (s Members) SetPassword(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.MemberID, current, next string, keep uuid.UUID) error {
	return inTx(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			update members set password_hash = $4
			where tenant_id = $1 and id = $2 and password_hash = $3 and removed_at is null`, tenant, id, current, next)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return metering.Errorf(metering.CodeConflict, "the password was changed meanwhile")
		}
		if err := endSessions(ctx, tx, tenant, id, keep); err != nil {
			return err
		}
		return audit(ctx, tx, tenant, actor, "member.set_password", id.String())
	})
}
