package access

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Sessions stores the sessions of signed-in members.
type Sessions struct{ pool *pg.Pool }

// SessionName is the content of a session token: tenant, member and id of the session.
type SessionName struct {
	Tenant  metering.TenantID
	Member  metering.MemberID
	Session uuid.UUID
}

// SignedIn is the session of a SessionName, with its member and tenant. The caller checks whether the
// session is live, because only the caller knows the time.
type SignedIn struct {
	Session metering.Session
	Member  metering.Member
	Tenant  metering.Tenant
}

const sessionColumns = `s.id, s.tenant_id, s.member_id, s.created_at, s.expires_at, s.ended_at`

func sessionFields(s *metering.Session) []any {
	return []any{&s.ID, &s.TenantID, &s.MemberID, &s.CreatedAt, &s.ExpiresAt, &s.EndedAt}
}

// Begin creates a session for a member that signed in. It ends the session that the new one replaces in the
// browser, if any, even a session of another tenant. It fails with CodeUnauthorized if the member was removed
// or its password changed since the sign-in was checked.
func (s Sessions) Begin(ctx context.Context, m metering.Member, former *SessionName, expires, now time.Time) (begun metering.Session, err error) {
	actor := metering.Actor(m.ID.String())
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			with unchanged as (
			  select from members
			  where tenant_id = @tenant and id = @member and person_id is not distinct from @person and removed_at is null
			  for share
			)
			insert into sessions as s (tenant_id, id, member_id, created_at, expires_at)
			select @tenant, @id, @member, @now, @expires
			from unchanged
			returning `+sessionColumns, pgx.NamedArgs{
			"tenant": m.TenantID, "member": m.ID, "person": m.PersonID, "id": uuid.New(), "expires": expires, "now": now,
		}).Scan(sessionFields(&begun)...)
		if errors.Is(err, pgx.ErrNoRows) {
			return metering.Errorf(metering.CodeUnauthorized, "the member was changed in the meantime; sign in again")
		}
		if err != nil {
			return err
		}
		if former != nil {
			if _, err := endSession(ctx, tx, metering.Actor(former.Member.String()), *former); err != nil {
				return err
			}
		}
		return audit.RecordChange(ctx, tx, m.TenantID, actor, "session.begin", begun.ID.String(), nil, audit.Fields{"member_id": m.ID.String(), "expires_at": expires.UTC()})
	})
	return begun, err
}

// Find returns the named sessions with their members and tenants, even if a session has ended or expired. The
// map has no entry for an unknown session or for a session of a removed member. Find searches all tenants,
// because the session of a request determines the tenant.
func (s Sessions) Find(ctx context.Context, names []SessionName) (map[SessionName]*SignedIn, error) {
	var tenants, members []int64
	var ids []uuid.UUID
	for _, name := range names {
		tenants, members, ids = append(tenants, int64(name.Tenant)), append(members, int64(name.Member)), append(ids, name.Session)
	}
	rows, err := s.pool.Query(ctx, `
		select `+sessionColumns+`, `+memberColumns+`, `+TenantColumns+`
		from unnest($1::bigint[], $2::bigint[], $3::uuid[]) as asked (tenant_id, member_id, id)
		join sessions s on s.tenant_id = asked.tenant_id and s.id = asked.id and s.member_id = asked.member_id
		join members m on m.tenant_id = s.tenant_id and m.id = s.member_id
		join tenants t on t.id = s.tenant_id
		where m.removed_at is null`, tenants, members, ids)
	if err != nil {
		return nil, pg.Coded(err)
	}
	found := make(map[SessionName]*SignedIn, len(names))
	for rows.Next() {
		in := new(SignedIn)
		fields := append(sessionFields(&in.Session), memberFields(&in.Member)...)
		if err := rows.Scan(append(fields, TenantFields(&in.Tenant)...)...); err != nil {
			rows.Close()
			return nil, pg.Coded(err)
		}
		found[SessionName{in.Tenant.ID, in.Member.ID, in.Session.ID}] = in
	}
	return found, pg.Coded(rows.Err())
}

// Live returns a member's sessions that have neither ended nor expired at now, newest first.
func (s Sessions) Live(ctx context.Context, tenant metering.TenantID, member metering.MemberID, now time.Time) ([]metering.Session, error) {
	rows, err := s.pool.Query(ctx, `
		select `+sessionColumns+` from sessions s
		where s.tenant_id = $1 and s.member_id = $2 and s.ended_at is null and s.expires_at > $3
		order by s.created_at desc, s.id`, tenant, member, now)
	if err != nil {
		return nil, pg.Coded(err)
	}
	live, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (one metering.Session, err error) {
		return one, row.Scan(sessionFields(&one)...)
	})
	return live, pg.Coded(err)
}

// End ends a session of a member, with effect when it returns. It fails with CodeNotFound if the member has
// no such session, or the session has ended.
func (s Sessions) End(ctx context.Context, actor metering.Actor, name SessionName) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		ended, err := endSession(ctx, tx, actor, name)
		if err == nil && !ended {
			return metering.Errorf(metering.CodeNotFound, "there is no such session, or it has ended")
		}
		return err
	})
}

// endSession ends a session and reports whether there was one to end.
func endSession(ctx context.Context, tx pgx.Tx, actor metering.Actor, name SessionName) (ended bool, err error) {
	tag, err := tx.Exec(ctx, `
		update sessions set ended_at = now() where tenant_id = $1 and member_id = $2 and id = $3 and ended_at is null`, name.Tenant, name.Member, name.Session)
	if err != nil || tag.RowsAffected() == 0 {
		return false, err
	}
	return true, audit.RecordChange(ctx, tx, name.Tenant, actor, "session.end", name.Session.String(), audit.Fields{"ended": false}, audit.Fields{"ended": true})
}

// EndAll ends all sessions of a member, with effect when it returns.
func (s Sessions) EndAll(ctx context.Context, tenant metering.TenantID, actor metering.Actor, member metering.MemberID) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		// With this lock, a concurrent sign-in has either committed its session already, or begins the
		// session after this transaction.
		if _, err := lockMember(ctx, tx, tenant, member); err != nil {
			return err
		}
		if err := endSessions(ctx, tx, tenant, member, noSession); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "session.end_all", member.String(), audit.Fields{"ended": false}, audit.Fields{"ended": true})
	})
}

// noSession makes endSessions end all sessions.
var noSession = uuid.Nil

// endSessions ends all sessions of a member, except the given session. The caller has locked the member's row, so that
// no session begins meanwhile.
func endSessions(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, member metering.MemberID, kept uuid.UUID) error {
	_, err := tx.Exec(ctx, `
		update sessions set ended_at = now()
		where tenant_id = $1 and member_id = $2 and id <> $3 and ended_at is null`, tenant, member, kept)
	return err
}

// Sweep deletes up to limit sessions, of any tenant, that expired before an instant.
func (s Sessions) Sweep(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return pg.OldRows{Table: "sessions", Key: "tenant_id, id", By: "expires_at", Noun: "sessions"}.Sweep(ctx, s.pool, before, limit)
}
