package access

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Invitations stores invitations. A person opens the link of an invitation to become a member, and a member
// opens it to set a new password or OIDC account. Except for Sweep, the methods ignore invitations that were
// accepted or revoked, or have expired.
type Invitations struct{ pool pg.Beginner }

const invitationColumns = `i.id, i.tenant_id, i.member_id, i.email, i.name, i.role, i.last_four, i.created_at, i.created_by, i.expires_at`

func invitationFields(i *metering.Invitation) []any {
	return []any{&i.ID, &i.TenantID, &i.MemberID, &i.Email, &i.Name, &i.Role, &i.LastFour, &i.CreatedAt, &i.CreatedBy, &i.ExpiresAt}
}

// Create creates an invitation and revokes earlier ones for the same e-mail. It returns CodeConflict
// if a member has the e-mail, or if the role is owner and the tenant has an owner.
func (s Invitations) Create(ctx context.Context, tenant metering.TenantID, actor metering.Actor, i metering.Invitation, tokenHash []byte, now time.Time) (created metering.Invitation, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.LockAccess(ctx, tx, tenant); err != nil {
			return err
		}
		if err := mayBeInvited(ctx, tx, tenant, i); err != nil {
			return err
		}
		created, err = invite(ctx, tx, tenant, actor, i, tokenHash, now)
		return err
	})
	return created, err
}

func mayBeInvited(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, i metering.Invitation) error {
	var member, owner bool
	err := tx.QueryRow(ctx, `
		select coalesce(bool_or(lower(email collate "C") = lower($2 collate "C")), false), coalesce(bool_or(role = $3), false)
		from members
		where tenant_id = $1 and removed_at is null`, tenant, i.Email, metering.RoleOwner).Scan(&member, &owner)
	switch {
	case err != nil:
		return err
	case member:
		return errMemberExists
	case owner && i.Role == metering.RoleOwner:
		return errOwnerExists
	}
	return nil
}

// OfMember creates an invitation with which an existing member sets a new password or OIDC account. It revokes
// earlier invitations for the member's e-mail.
func (s Invitations) OfMember(ctx context.Context, tenant metering.TenantID, actor metering.Actor, member metering.MemberID, lastFour string, tokenHash []byte, now time.Time) (created metering.Invitation, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.LockAccess(ctx, tx, tenant); err != nil {
			return err
		}
		m, err := lockMember(ctx, tx, tenant, member)
		if err != nil {
			return err
		}
		i := metering.Invitation{MemberID: &m.ID, Email: m.Email, Name: m.Name, Role: m.Role, LastFour: lastFour}
		if err := mayHandle(actor, i); err != nil {
			return err
		}
		created, err = invite(ctx, tx, tenant, actor, i, tokenHash, now)
		return err
	})
	return created, err
}

// mayHandle returns CodeForbidden if the actor may not create, renew or revoke the invitation. Only the owner
// and the operator may do so for a password reset of the owner. Such a reset gives access as the owner.
func mayHandle(actor metering.Actor, i metering.Invitation) error {
	if i.MemberID == nil || i.Role != metering.RoleOwner || actor == metering.Operator || actor == metering.Actor(i.MemberID.String()) {
		return nil
	}
	return metering.Errorf(metering.CodeForbidden, "only the owner can create, renew or revoke a password reset of the owner. If the owner cannot sign in, make another member the owner first")
}

// endResets revokes the pending resets of members that get another role, because the creators of the
// resets were checked against the previous role.
func endResets(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, members ...metering.MemberID) error {
	_, err := tx.Exec(ctx, `
		update invitations
		set revoked_at = coalesce(revoked_at, now())
		where tenant_id = $1
		  and member_id = any($2)
		  and accepted_at is null
		  and revoked_at is null`, tenant, members)
	return err
}

var memberLimit = pg.Limit{
	Count: `
		select
		  (select count(*) from members where tenant_id = @tenant and removed_at is null) +
		  (select count(*) from invitations
		    where tenant_id = @tenant and member_id is null and accepted_at is null and revoked_at is null and expires_at > @now)`,
	Most: metering.MaxMembers, Noun: "members and pending invitations", Fix: "remove or revoke one first",
}

// invite creates an invitation, publishes it to the tenant's webhooks, and revokes earlier ones for the same e-mail.
func invite(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, i metering.Invitation, tokenHash []byte, now time.Time) (created metering.Invitation, err error) {
	_, err = tx.Exec(ctx, `
		update invitations set revoked_at = $3
		where tenant_id = $1
		  and lower(email collate "C") = lower($2 collate "C")
		  and accepted_at is null
		  and revoked_at is null`, tenant, i.Email, metering.Instant(now))
	if err != nil {
		return created, err
	}
	if i.MemberID == nil {
		if err := pg.RequireRoom(ctx, tx, tenant, memberLimit.At(now)); err != nil {
			return created, err
		}
	}
	err = tx.QueryRow(ctx, `
		insert into invitations as i (tenant_id, member_id, email, name, role, token_hash, last_four, created_at, created_by, expires_at)
		values (@tenant, @member, @email, @name, @role, @token_hash, @last_four, @now, @actor, @expires)
		returning `+invitationColumns, pgx.NamedArgs{
		"tenant": tenant, "member": i.MemberID, "email": i.Email, "name": i.Name, "role": i.Role, "token_hash": tokenHash,
		"last_four": i.LastFour, "now": metering.Instant(now), "actor": actor, "expires": metering.Instant(now.Add(metering.InvitationLasts)),
	}).Scan(invitationFields(&created)...)
	if err != nil {
		return created, err
	}
	if err := publishInvitation(ctx, tx, created, now); err != nil {
		return created, err
	}
	return created, audit.RecordChange(ctx, tx, tenant, actor, "member.invite", created.ID.String(), nil, auditedInvitation(created))
}

// publishInvitation notifies the tenant's webhooks that an invitation is ready to be sent. The
// message does not contain the token, because readers of webhook deliveries need not be admins.
func publishInvitation(ctx context.Context, tx pgx.Tx, i metering.Invitation, now time.Time) error {
	data := outbox.MemberInvited{InvitationID: i.ID.String(), ExpiresAt: i.ExpiresAt.UTC()}
	if i.MemberID != nil {
		data.MemberID = i.MemberID.String()
	}
	return outbox.Publish(ctx, tx, i.TenantID, metering.WholeTenant, data, now)
}

// isPending is a SQL condition that invitation i is pending. The caller appends the parameter for the current time.
const isPending = `i.accepted_at is null and i.revoked_at is null and i.expires_at > `

var errNoInvitation = metering.Errorf(metering.CodeNotFound, "there is no such invitation, or it was accepted or revoked, or it has expired")

func orNoInvitation(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return errNoInvitation.Because(err)
	}
	return pg.Coded(err)
}

// List returns the next pending invitations in order of ID, at most limit. It begins after the given ID.
func (s Invitations) List(ctx context.Context, tenant metering.TenantID, after metering.InvitationID, limit int, now time.Time) (page pg.Page[metering.Invitation], err error) {
	rows, err := s.pool.Query(ctx, `
		select `+invitationColumns+` from invitations i
		where i.tenant_id = $1 and i.id > $2 and `+isPending+`$4
		order by i.id
		limit $3`, tenant, after, limit+1, now)
	if err != nil {
		return page, pg.Coded(err)
	}
	page, err = pg.ReadPage(ctx, rows, limit, func(row pgx.CollectableRow) (i metering.Invitation, err error) {
		return i, row.Scan(invitationFields(&i)...)
	})
	return page, pg.Coded(err)
}

// Get returns a pending invitation, or CodeNotFound.
func (s Invitations) Get(ctx context.Context, tenant metering.TenantID, id metering.InvitationID, now time.Time) (i metering.Invitation, err error) {
	err = s.pool.QueryRow(ctx, `select `+invitationColumns+` from invitations i where i.tenant_id = $1 and i.id = $2 and `+isPending+`$3`,
		tenant, id, now).Scan(invitationFields(&i)...)
	return i, orNoInvitation(err)
}

// Renew replaces the token of a pending invitation, which then expires metering.InvitationLasts from now.
func (s Invitations) Renew(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.InvitationID, lastFour string, tokenHash []byte, now time.Time) (renewed metering.Invitation, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			update invitations i
			set token_hash = $3, last_four = $4, expires_at = $5
			where i.tenant_id = $1 and i.id = $2 and `+isPending+`$6
			returning `+invitationColumns, tenant, id, tokenHash, lastFour, metering.Instant(now.Add(metering.InvitationLasts)), now).Scan(invitationFields(&renewed)...)
		if err != nil {
			return orNoInvitation(err)
		}
		if err := mayHandle(actor, renewed); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "invitation.renew", id.String(), nil, audit.Fields{"token": audit.Secret(true), "expires_at": renewed.ExpiresAt.UTC()})
	})
	return renewed, err
}

// Revoke revokes a pending invitation, or returns CodeNotFound. The invitation is invalid once Revoke
// returns.
func (s Invitations) Revoke(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.InvitationID, now time.Time) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		var revoked metering.Invitation
		err := tx.QueryRow(ctx, `
			update invitations i
			set revoked_at = $3
			where i.tenant_id = $1 and i.id = $2 and `+isPending+`$3
			returning `+invitationColumns, tenant, id, metering.Instant(now)).Scan(invitationFields(&revoked)...)
		if err != nil {
			return orNoInvitation(err)
		}
		if err := mayHandle(actor, revoked); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "invitation.revoke", id.String(), audit.Fields{"revoked": false}, audit.Fields{"revoked": true})
	})
}

// Find returns the pending invitation with a token, or CodeNotFound. It searches all tenants, because
// the invited person knows the token only.
func (s Invitations) Find(ctx context.Context, tokenHash []byte, now time.Time) (i metering.Invitation, err error) {
	err = s.pool.QueryRow(ctx, `select `+invitationColumns+` from invitations i where i.token_hash = $1 and `+isPending+`$2`,
		tokenHash, now).Scan(invitationFields(&i)...)
	return i, orNoInvitation(err)
}

// Accept accepts the invitation with the token and sets the password. It creates the member. A reset
// instead changes the password of its member and ends the member's sessions. A token works once.
func (s Invitations) Accept(ctx context.Context, tokenHash, passwordHash []byte, now time.Time) (m metering.Member, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		i, err := acceptInvitation(ctx, tx, `i.token_hash = $1`, tokenHash, now)
		if err != nil {
			return err
		}
		who, err := ensurePerson(ctx, tx, i.Email, passwordHash)
		if err != nil {
			return err
		}
		if i.MemberID != nil {
			m, err = setPerson(ctx, tx, i.TenantID, *i.MemberID, who)
		} else {
			m, err = addMember(ctx, tx, i.TenantID, i.CreatedBy, metering.Member{Email: i.Email, Name: i.Name, Role: i.Role, PersonID: who})
		}
		if err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, m.TenantID, metering.Actor(m.ID.String()), "member.accept", i.ID.String(), nil, auditedMember(m))
	})
	return m, err
}

// AcceptAt accepts an invitation with an account at the tenant's OIDC issuer. The account replaces
// the member's previous account at the issuer. A password of the member stays valid.
func (s Invitations) AcceptAt(ctx context.Context, tenant metering.TenantID, id metering.InvitationID, by metering.Identity, now time.Time) (m metering.Member, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		i, err := acceptInvitation(ctx, tx, `(i.tenant_id, i.id) = ($1, $3)`, tenant, now, id)
		if err != nil {
			return err
		}
		if i.MemberID != nil {
			m, err = lockMember(ctx, tx, tenant, *i.MemberID)
		} else {
			m, err = addMember(ctx, tx, tenant, i.CreatedBy, metering.Member{Email: i.Email, Name: i.Name, Role: i.Role})
		}
		if err != nil {
			return err
		}
		if err := bindIdentity(ctx, tx, m, by); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, metering.Actor(m.ID.String()), "member.accept", i.ID.String(), nil, auditedMember(m))
	})
	return m, err
}

// acceptInvitation marks the pending invitation that meets the SQL condition as accepted, and returns it. In
// the condition, $1 is named, $2 is the current time, and $3 and later are more.
func acceptInvitation(ctx context.Context, tx pgx.Tx, condition string, named any, now time.Time, more ...any) (i metering.Invitation, err error) {
	err = tx.QueryRow(ctx, `
		update invitations i set accepted_at = $2
		where `+condition+` and `+isPending+`$2
		returning `+invitationColumns, append([]any{named, metering.Instant(now)}, more...)...).Scan(invitationFields(&i)...)
	return i, orNoInvitation(err)
}

// setPerson replaces the e-mail and password (the person) with which a member signs in. It ends the
// member's sessions, and deletes the previous person if no member refers to it.
func setPerson(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, id metering.MemberID, who *metering.PersonID) (m metering.Member, err error) {
	former, err := lockMember(ctx, tx, tenant, id)
	if err != nil {
		return m, err
	}
	err = tx.QueryRow(ctx, `update members m set person_id = $3 where m.tenant_id = $1 and m.id = $2 returning `+memberColumns,
		tenant, id, who).Scan(memberFields(&m)...)
	if err != nil {
		return m, err
	}
	if err := endSessions(ctx, tx, tenant, id, noSession); err != nil {
		return m, err
	}
	return m, deleteUnusedPerson(ctx, tx, former.PersonID)
}

func auditedInvitation(i metering.Invitation) audit.Fields {
	fields := audit.Fields{"email": audit.Personal(i.Email), "name": audit.Personal(i.Name), "role": i.Role, "expires_at": i.ExpiresAt.UTC(), "token": audit.Secret(true)}
	if i.MemberID != nil {
		fields["member_id"] = i.MemberID.String()
	}
	return fields
}

// Sweep deletes up to limit invitations, of any tenant, that expired before an instant. These include accepted
// and revoked invitations, which keep their expiry time.
func (s Invitations) Sweep(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return pg.OldRows{Table: "invitations", Key: "tenant_id, id", By: "expires_at", Noun: "invitations"}.Sweep(ctx, s.pool, before, limit)
}
