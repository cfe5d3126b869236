package access

import (
	"context"
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
	with recursive credentials as (
	  select 'api_keys' as kind, id, 'key_' || id as name, coalesce(handed_to, created_by) as answers_to, revoked_at, expires_at
	  from api_keys
	  where tenant_id = $1
	  union all
	  select 'hmac_secrets', id, 'sec_' || id, coalesce(handed_to, created_by), revoked_at, expires_at
	  from hmac_secrets
	  where tenant_id = $1),
	made as (
	  select c.* from credentials c where c.answers_to = $2
	  union
	  select c.* from credentials c join made m on c.answers_to = m.name)`

// madeCredential is a live API key or HMAC secret.
type madeCredential struct {
	Kind string
	ID   int64
	Name string
}

func credentialsOf(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, maker metering.Actor, now time.Time) ([]madeCredential, error) {
	rows, err := tx.Query(ctx, credentialsMade+`
		select kind, id, name from made
		where revoked_at is null
		  and (expires_at is null or expires_at > $3)
		order by kind, id`, tenant, maker, now)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowToStructByPos[madeCredential])
}

// settle revokes or hands over the live credentials of a member that is being removed, as chosen.
// Without a choice it returns CodeConflict, and the message names the credentials.
func settle(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, id metering.MemberID, chosen metering.KeysChoice, now time.Time) error {
	maker := metering.Actor(id.String())
	live, err := credentialsOf(ctx, tx, tenant, maker, now)
	if err != nil || len(live) == 0 {
		return err
	}
	switch chosen {
	case metering.RevokeKeys:
		return revokeAll(ctx, tx, tenant, actor, live)
	case metering.HandOverKeys:
		return handOver(ctx, tx, tenant, actor, maker, live)
	}
	return metering.Errorf(metering.CodeConflict,
		"the member created credentials that are still valid: %s. Pass keys=revoke to revoke them, or keys=hand_over to take responsibility for them", namesOf(live))
}

func namesOf(credentials []madeCredential) string {
	names := make([]string, len(credentials))
	for i, c := range credentials {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

func revokeAll(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, credentials []madeCredential) (err error) {
	for _, c := range credentials {
		if c.Kind == "api_keys" {
			err = revokeAPIKey(ctx, tx, tenant, actor, metering.KeyID(c.ID))
		} else {
			err = revokeHMACSecret(ctx, tx, tenant, actor, metering.HMACSecretID(c.ID))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// handOver makes the actor responsible for the maker's credentials. The stored creator of a credential
// stays the maker.
func handOver(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor, maker metering.Actor, live []madeCredential) error {
	for _, c := range live {
		if metering.Actor(c.Name) == actor {
			return metering.Errorf(metering.CodeConflict, "this request uses %s, which is one of the credentials to hand over; use another credential, or pass keys=revoke", c.Name)
		}
	}
	for _, table := range []string{"api_keys", "hmac_secrets"} {
		_, err := tx.Exec(ctx, `update `+table+` set handed_to = $3 where tenant_id = $1 and coalesce(handed_to, created_by) = $2`, tenant, maker, actor)
		if err != nil {
			return err
		}
	}
	for _, c := range live {
		if err := audit.RecordChange(ctx, tx, tenant, actor, "credential.hand_over", c.Name, audit.Fields{"handed_to": maker}, audit.Fields{"handed_to": actor}); err != nil {
			return err
		}
	}
	return nil
}

// holdMaker locks the creator of a credential, a member or another credential, until the end of the
// transaction. The lock prevents the removal or revocation of the creator. Otherwise, the new credential
// would outlive its creator. It returns CodeUnauthorized if the creator is already removed or revoked.
func holdMaker(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, maker metering.Actor) error {
	for prefix, of := range map[string][2]string{
		"member_": {"members", "removed_at"}, "key_": {"api_keys", "revoked_at"}, "sec_": {"hmac_secrets", "revoked_at"},
	} {
		if !strings.HasPrefix(string(maker), prefix) {
			continue
		}
		rows, err := tx.Query(ctx, `select `+of[1]+` is null from `+of[0]+` where tenant_id = $1 and $2 || id = $3 for share`, tenant, prefix, maker)
		if err != nil {
			return err
		}
		stay, err := pgx.CollectRows(rows, pgx.RowTo[bool])
		if err != nil {
			return err
		}
		if len(stay) == 1 && !stay[0] {
			return metering.Errorf(metering.CodeUnauthorized, "the caller was removed in the meantime")
		}
	}
	return nil
}
