package access

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// OIDC stores the tenants' OIDC issuers, the unfinished sign-ins at the issuers, and the members' accounts at
// the issuers.
type OIDC struct{ pool *pg.Pool }

const oidcColumns = `issuer, client_id, client_secret, updated_at`

func oidcFields(o *metering.OIDC) []any {
	return []any{&o.Issuer, &o.ClientID, &o.SealedSecret, &o.UpdatedAt}
}

// Save sets the tenant's issuer. It deletes the tenant's unfinished sign-ins.
func (s OIDC) Save(ctx context.Context, tenant metering.TenantID, actor metering.Actor, o metering.OIDC) (saved metering.OIDC, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `delete from oidc_sign_ins where tenant_id = $1`, tenant); err != nil {
			return err
		}
		former, err := formerOIDC(ctx, tx, tenant)
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `
			insert into oidc_issuers (tenant_id, issuer, client_id, client_secret, updated_by)
			values (@tenant, @issuer, @client_id, @client_secret, @actor)
			on conflict (tenant_id) do update
			set issuer = excluded.issuer, client_id = excluded.client_id, client_secret = excluded.client_secret,
			    updated_at = now(), updated_by = excluded.updated_by
			returning `+oidcColumns, pgx.NamedArgs{
			"tenant": tenant, "issuer": o.Issuer, "client_id": o.ClientID, "client_secret": o.SealedSecret,
			"actor": actor,
		}).Scan(oidcFields(&saved)...)
		if err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "oidc.save", tenant.String(), former, auditedOIDC(saved))
	})
	return saved, err
}

// formerOIDC returns the audited fields of the tenant's issuer before a change, or nil if there is
// no issuer. It locks the issuer until the end of the transaction.
func formerOIDC(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) (audit.Fields, error) {
	var o metering.OIDC
	err := tx.QueryRow(ctx, `select `+oidcColumns+` from oidc_issuers where tenant_id = $1 for update`, tenant).Scan(oidcFields(&o)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return auditedOIDC(o), err
}

var errNoOIDC = metering.Errorf(metering.CodeNotFound, "the tenant has no OIDC issuer")

// Get returns the tenant's issuer, or CodeNotFound.
func (s OIDC) Get(ctx context.Context, tenant metering.TenantID) (o metering.OIDC, err error) {
	err = s.pool.QueryRow(ctx, `select `+oidcColumns+` from oidc_issuers where tenant_id = $1`, tenant).Scan(oidcFields(&o)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return o, errNoOIDC.Because(err)
	}
	return o, pg.Coded(err)
}

// Delete deletes the tenant's issuer and the unfinished sign-ins. It returns CodeNotFound if there
// is no issuer.
func (s OIDC) Delete(ctx context.Context, tenant metering.TenantID, actor metering.Actor) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		former, err := formerOIDC(ctx, tx, tenant)
		if err != nil {
			return err
		}
		if former == nil {
			return errNoOIDC
		}
		if _, err := tx.Exec(ctx, `delete from oidc_issuers where tenant_id = $1`, tenant); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "oidc.delete", tenant.String(), former, nil)
	})
}

// Begin stores a sign-in until the browser returns from the issuer, and deletes the tenant's expired
// sign-ins. It writes no audit entry, because no member has signed in yet.
func (s OIDC) Begin(ctx context.Context, in metering.SignIn, now time.Time) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `delete from oidc_sign_ins where tenant_id = $1 and expires_at < $2`, in.TenantID, now); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `
			insert into oidc_sign_ins (tenant_id, state_hash, invitation_id, expires_at)
			values ($1, $2, $3, $4)`, in.TenantID, in.StateHash, in.InvitationID, in.ExpiresAt)
		return err
	})
}

// Take returns a sign-in and deletes it, or returns CodeNotFound. The caller checks ExpiresAt. The hash
// of the state identifies the tenant.
func (s OIDC) Take(ctx context.Context, stateHash []byte) (in metering.SignIn, err error) {
	err = s.pool.QueryRow(ctx, `
		delete from oidc_sign_ins where state_hash = $1
		returning tenant_id, state_hash, invitation_id, expires_at`, stateHash).Scan(&in.TenantID, &in.StateHash, &in.InvitationID, &in.ExpiresAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return in, metering.Errorf(metering.CodeNotFound, "there is no such sign-in").Because(err)
	}
	return in, pg.Coded(err)
}

// Member returns the member with an account at the issuer, or CodeNotFound.
func (s OIDC) Member(ctx context.Context, tenant metering.TenantID, of metering.Identity) (m metering.Member, err error) {
	err = s.pool.QueryRow(ctx, `
		select `+memberColumns+`
		from oidc_identities o
		join members m on m.tenant_id = o.tenant_id and m.id = o.member_id
		where o.tenant_id = $1
		  and o.issuer = $2
		  and o.subject = $3
		  and m.removed_at is null`, tenant, of.Issuer, of.Subject).Scan(memberFields(&m)...)
	return m, orNoMember(err)
}

// bindIdentity assigns an account at an issuer to a member, in place of the member's previous account at
// that issuer. It returns CodeConflict if another member has the account.
func bindIdentity(ctx context.Context, tx pgx.Tx, m metering.Member, to metering.Identity) error {
	if err := unbindIdentity(ctx, tx, m.TenantID, m.ID, &to.Issuer); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `insert into oidc_identities (tenant_id, issuer, subject, member_id) values ($1, $2, $3, $4)`,
		m.TenantID, to.Issuer, to.Subject, m.ID)
	if pg.ViolatedUnique(err) != "" {
		return metering.Errorf(metering.CodeConflict, "another member already uses this account at the issuer").Because(err)
	}
	return err
}

// unbindIdentity deletes a member's account at the issuer, or at all issuers if issuer is nil.
func unbindIdentity(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, id metering.MemberID, issuer *string) error {
	_, err := tx.Exec(ctx, `
		delete from oidc_identities
		where tenant_id = $1
		  and member_id = $2
		  and ($3::text is null or issuer = $3)`, tenant, id, issuer)
	return err
}

func auditedOIDC(o metering.OIDC) audit.Fields {
	return audit.Fields{"issuer": o.Issuer, "client_id": o.ClientID, "client_secret": audit.Secret(o.SealedSecret != nil)}
}
