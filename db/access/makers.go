package access

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/metering"
)

// credentialsMade is a WITH clause that defines made: the credentials of tenant $1 for which actor $2 is
// responsible. These are the credentials that the actor created or took over, and recursively the credentials
// that these credentials created.
const credentialsMade = `
	with recursive named as (
	  select kind, id, case kind when 'api_key' then 'key_' else 'sec_' end || id as name, coalesce(handed_to, created_by) as answers_to, revoked_at, expires_at
	  from credentials
	  where tenant_id = $1),
	made as (
	  select n.* from named n where n.answers_to = $2
	  union
	  select n.* from named n join made m on n.answers_to = m.name)`

// credentialsOf returns the live credentials for which an actor is responsible, as credentialsMade defines it.
func credentialsOf(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, responsible metering.Actor, now time.Time) ([]metering.CredentialID, error) {
	rows, err := tx.Query(ctx, credentialsMade+`
		select kind, id from made
		where revoked_at is null
		  and (expires_at is null or expires_at > $3)
		order by kind, id`, tenant, responsible, now)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[metering.CredentialID])
}

// settleCredentials revokes or hands over the live credentials of a member that is being removed, as chosen.
// Without a choice it returns CodeConflict, and the message names the credentials.
func settleCredentials(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, id metering.MemberID, chosen metering.KeysChoice, now time.Time) error {
	live, err := credentialsOf(ctx, tx, tenant, metering.Actor(id.String()), now)
	if err != nil || len(live) == 0 {
		return err
	}
	switch chosen {
	case metering.RevokeKeys:
		return revokeAll(ctx, tx, tenant, actor, live)
	case metering.HandOverKeys:
		if actor == metering.Actor(id.String()) {
			return metering.Errorf(metering.CodeConflict, "a member that removes itself cannot take over credentials; let another member remove it, or pass keys=revoke")
		}
		return handOver(ctx, tx, tenant, actor, live)
	}
	return metering.Errorf(metering.CodeConflict,
		"the member created credentials that are still valid: %s. Pass keys=revoke to revoke them, or keys=hand_over to take responsibility for them", namesOf(live))
}

func namesOf(credentials []metering.CredentialID) string {
	names := make([]string, len(credentials))
	for i, id := range credentials {
		names[i] = id.String()
	}
	return strings.Join(names, ", ")
}

func revokeAll(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, credentials []metering.CredentialID) error {
	for _, id := range credentials {
		if err := revokeCredential(ctx, tx, tenant, actor, id); err != nil {
			return err
		}
	}
	return nil
}

// handOver makes the actor responsible for the live credentials of a member that is being removed. Each of them
// gets handed_to, even if another credential created it. created_by stays unchanged. It returns CodeConflict if
// the actor itself is one of these credentials, and CodeUnauthorized if the actor is removed or revoked.
func handOver(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, live []metering.CredentialID) error {
	for _, id := range live {
		if metering.Actor(id.String()) == actor {
			return metering.Errorf(metering.CodeConflict, "this request uses %s, which is one of the credentials to hand over; use another credential, or pass keys=revoke", id)
		}
	}
	if err := lockResponsible(ctx, tx, tenant, actor); err != nil {
		return err
	}
	for _, id := range live {
		var previous *metering.Actor
		err := tx.QueryRow(ctx, `
			update credentials c
			set handed_to = $4
			from (select handed_to from credentials where tenant_id = $1 and kind = $2 and id = $3 for update) previous
			where c.tenant_id = $1
			  and c.kind = $2
			  and c.id = $3
			returning previous.handed_to`, tenant, id.Kind, id.Number, actor).Scan(&previous)
		if err != nil {
			return err
		}
		if err := audit.RecordChange(ctx, tx, tenant, actor, "credential.hand_over", id.String(), audit.Fields{"handed_to": previous}, audit.Fields{"handed_to": actor}); err != nil {
			return err
		}
	}
	return nil
}

// lockResponsible locks the actor (a member or a credential) that becomes responsible for a credential, until
// the end of the transaction. The lock prevents the removal or revocation of the actor. Otherwise, the
// credential would outlive the actor. It returns CodeUnauthorized if the actor is already removed or revoked.
func lockResponsible(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor) error {
	var row pgx.Row
	if id, is := metering.ParseMemberID(string(actor)); is {
		row = tx.QueryRow(ctx, `select removed_at is null from members where tenant_id = $1 and id = $2 for share`, tenant, id)
	} else if id, is := metering.ParseCredentialID(string(actor)); is {
		row = tx.QueryRow(ctx, `select revoked_at is null from credentials where tenant_id = $1 and kind = $2 and id = $3 for share`, tenant, id.Kind, id.Number)
	} else {
		return nil
	}
	var stays bool
	err := row.Scan(&stays)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err == nil && !stays {
		err = metering.Errorf(metering.CodeUnauthorized, "the caller was removed in the meantime")
	}
	return err
}
