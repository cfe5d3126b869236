package access

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Members stores the members of tenants. Removed members stay stored, because the audit log refers
// to them. The methods ignore removed members.
type Members struct{ pool pg.Beginner }

const memberColumns = `m.id, m.tenant_id, m.email, m.name, m.role, m.person_id, m.created_at`

func memberFields(m *metering.Member) []any {
	return []any{&m.ID, &m.TenantID, &m.Email, &m.Name, &m.Role, &m.PersonID, &m.CreatedAt}
}

// Create creates a member without an invitation, for operators. If passwordHash is nil, the member
// has no password. It returns CodeConflict if a member has the e-mail, or if the role is owner and the
// tenant has an owner.
func (s Members) Create(ctx context.Context, tenant metering.TenantID, actor metering.Actor, m metering.Member, passwordHash []byte) (created metering.Member, err error) {
	if err := m.Validate(); err != nil {
		return metering.Member{}, err
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if m.PersonID, err = ensurePerson(ctx, tx, m.Email, passwordHash); err != nil {
			return err
		}
		if created, err = addMember(ctx, tx, tenant, actor, m); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "member.create", created.ID.String(), nil, auditedMember(created))
	})
	return created, err
}

func addMember(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, m metering.Member) (created metering.Member, err error) {
	err = tx.QueryRow(ctx, `
		insert into members as m (tenant_id, email, name, role, person_id, created_by)
		values (@tenant, @email, @name, @role, @person, @actor)
		returning `+memberColumns, pgx.NamedArgs{
		"tenant": tenant, "email": m.Email, "name": m.Name, "role": m.Role, "person": m.PersonID, "actor": actor,
	}).Scan(memberFields(&created)...)
	if err != nil {
		return created, memberConflict(err)
	}
	return created, nil
}

var (
	errOwnerExists  = metering.Errorf(metering.CodeConflict, "the tenant already has an owner, who can transfer ownership with make-owner")
	errMemberExists = metering.Errorf(metering.CodeConflict, "a member with this e-mail exists already")
)

func memberConflict(err error) error {
	switch pg.ViolatedUnique(err) {
	case "":
		return err
	case "members_owner":
		return errOwnerExists.Because(err)
	}
	return errMemberExists.Because(err)
}

var errNoMember = metering.Errorf(metering.CodeNotFound, "there is no such member")

// List returns the next members in order of ID, at most limit. It begins after the given ID.
func (s Members) List(ctx context.Context, tenant metering.TenantID, after metering.MemberID, limit int) (page pg.Page[metering.Member], err error) {
	rows, err := s.pool.Query(ctx, `
		select `+memberColumns+` from members m
		where m.tenant_id = $1 and m.id > $2 and m.removed_at is null
		order by m.id
		limit $3`, tenant, after, limit+1)
	if err != nil {
		return page, pg.Coded(err)
	}
	page, err = pg.ReadPage(ctx, rows, limit, scanMember)
	return page, pg.Coded(err)
}

func collectMembers(rows pgx.Rows) ([]metering.Member, error) {
	members, err := pgx.CollectRows(rows, scanMember)
	return members, pg.Coded(err)
}

func scanMember(row pgx.CollectableRow) (m metering.Member, err error) {
	return m, row.Scan(memberFields(&m)...)
}

// MemberChange is a change of a member. Nil fields stay unchanged.
type MemberChange struct {
	Name *string
	Role *metering.Role
}

// Update changes a member. It returns CodeConflict for a change from or to the role owner, which only
// MakeOwner makes.
func (s Members) Update(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.MemberID, change MemberChange) (updated metering.Member, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		m, err := lockMember(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		if change.Role != nil && *change.Role != m.Role && (m.Role == metering.RoleOwner || *change.Role == metering.RoleOwner) {
			return metering.Errorf(metering.CodeConflict, "the role owner changes only with make-owner")
		}
		if change.Role != nil && *change.Role != m.Role {
			if err := endResets(ctx, tx, tenant, id); err != nil {
				return err
			}
		}
		err = tx.QueryRow(ctx, `
			update members m
			set name = coalesce($3, m.name), role = coalesce($4, m.role)
			where m.tenant_id = $1 and m.id = $2
			returning `+memberColumns, tenant, id, change.Name, change.Role).Scan(memberFields(&updated)...)
		if err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "member.update", id.String(), auditedMember(m), auditedMember(updated))
	})
	return updated, err
}

// lockMember returns a member and locks it until the end of the transaction.
func lockMember(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, id metering.MemberID) (m metering.Member, err error) {
	err = tx.QueryRow(ctx, `
		select `+memberColumns+` from members m where m.tenant_id = $1 and m.id = $2 and m.removed_at is null for update`,
		tenant, id).Scan(memberFields(&m)...)
	return m, orNoMember(err)
}

func orNoMember(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return errNoMember.Because(err)
	}
	return pg.Coded(err)
}

// Remove removes a member. It ends the member's sessions, and revokes the pending invitations for the member
// and by the member. It returns CodeConflict for the owner. It also returns CodeConflict if the member has
// created live credentials and keys chooses neither to revoke nor to hand over these credentials. It returns
// CodeUnauthorized if the credentials would be handed over to an actor that is itself removed or revoked.
func (s Members) Remove(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.MemberID, keys metering.KeysChoice, now time.Time) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.LockAccess(ctx, tx, tenant); err != nil { // without the lock, two members that remove each other would deadlock
			return err
		}
		m, err := lockMember(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		if m.Role == metering.RoleOwner {
			return metering.Errorf(metering.CodeConflict, "the owner cannot be removed: make another member owner first")
		}
		if err := settleCredentials(ctx, tx, tenant, actor, id, keys, now); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			update members set removed_at = now(), person_id = null where tenant_id = $1 and id = $2`, tenant, id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			update invitations
			set revoked_at = coalesce(revoked_at, now())
			where tenant_id = $1
			  and (member_id = $2 or created_by = $3)
			  and accepted_at is null`, tenant, id, id.String())
		if err != nil {
			return err
		}
		if err := deleteUnusedPerson(ctx, tx, m.PersonID); err != nil {
			return err
		}
		if err := unbindIdentity(ctx, tx, tenant, id, nil); err != nil {
			return err
		}
		if err := endSessions(ctx, tx, tenant, id, noSession); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "member.remove", id.String(), auditedMember(m), nil)
	})
}

// MakeOwner makes a member the tenant's owner. The previous owner, if any, becomes an admin.
func (s Members) MakeOwner(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.MemberID) (made metering.Member, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.LockAccess(ctx, tx, tenant); err != nil { // without the lock, concurrent calls would each demote the same owner
			return err
		}
		former, err := lockMember(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `
			update members set role = $3
			where tenant_id = $1 and id <> $2 and role = $4 and removed_at is null
			returning id`, tenant, id, metering.RoleAdmin, metering.RoleOwner)
		if err != nil {
			return err
		}
		changed, err := pgx.CollectRows(rows, pgx.RowTo[metering.MemberID])
		if err != nil {
			return err
		}
		if former.Role != metering.RoleOwner {
			changed = append(changed, id)
		}
		if err := endResets(ctx, tx, tenant, changed...); err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `
			update members m set role = $3
			where m.tenant_id = $1 and m.id = $2
			returning `+memberColumns, tenant, id, metering.RoleOwner).Scan(memberFields(&made)...)
		if err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "member.make_owner", id.String(), auditedMember(former), auditedMember(made))
	})
	return made, err
}

// SetPassword changes the password of a member's person in every tenant where the person is a member.
// It ends the sessions of these members, except the given session. It returns CodeConflict if the
// password was changed meanwhile.
func (s Members) SetPassword(ctx context.Context, m metering.Member, passwordHash []byte, kept uuid.UUID) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		same, err := samePerson(ctx, tx, m)
		if err != nil {
			return err
		}
		next, err := ensurePerson(ctx, tx, m.Email, passwordHash)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `update members set person_id = $2 where person_id = $1`, m.PersonID, next); err != nil {
			return err
		}
		for _, m := range same {
			if err := endSessions(ctx, tx, m.TenantID, m.ID, kept); err != nil {
				return err
			}
			if err := audit.RecordChange(ctx, tx, m.TenantID, metering.Actor(m.ID.String()), "member.set_password", m.ID.String(), nil, audit.Fields{"password": audit.Secret(true)}); err != nil {
				return err
			}
		}
		return deleteUnusedPerson(ctx, tx, m.PersonID)
	})
}

// samePerson returns the members of all tenants that are the same person as the member. It locks
// them until the end of the transaction. It returns CodeConflict if the member refers to another
// person now, because the password was changed meanwhile.
func samePerson(ctx context.Context, tx pgx.Tx, of metering.Member) ([]metering.Member, error) {
	rows, err := tx.Query(ctx, `
		select `+memberColumns+` from members m where m.person_id = $1 order by m.tenant_id, m.id for update`, of.PersonID)
	if err != nil {
		return nil, err
	}
	same, err := collectMembers(rows)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(same, func(m metering.Member) bool { return m.TenantID == of.TenantID && m.ID == of.ID }) {
		return nil, metering.Errorf(metering.CodeConflict, "the password was changed in the meantime; try again")
	}
	return same, nil
}

// minResetInterval is the minimum time between two password reset requests for a member.
const minResetInterval = 10 * time.Minute

// AskForReset publishes a password reset request for each member with one of these e-mails, in all
// tenants. It publishes at most one request per member within minResetInterval. The request is not
// authenticated.
func (s Members) AskForReset(ctx context.Context, emails []string, now time.Time) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, `
			update members m
			set reset_asked_at = $2
			where lower(m.email collate "C") = any($1)
			  and m.removed_at is null
			  and (m.reset_asked_at is null or m.reset_asked_at <= $3)
			returning `+memberColumns, folded(emails), metering.Instant(now), metering.Instant(now.Add(-minResetInterval)))
		if err != nil {
			return err
		}
		asked, err := collectMembers(rows)
		if err != nil {
			return err
		}
		for _, m := range asked {
			if err := outbox.Publish(ctx, tx, m.TenantID, metering.WholeTenant, outbox.PasswordResetRequested{MemberID: m.ID.String()}, now); err != nil {
				return err
			}
		}
		return nil
	})
}

func folded(emails []string) []string {
	all := make([]string, len(emails))
	for i, email := range emails {
		all[i] = metering.FoldEmail(email)
	}
	return all
}

func auditedMember(m metering.Member) audit.Fields {
	return audit.Fields{"email": audit.Personal(m.Email), "name": audit.Personal(m.Name), "role": m.Role}
}
