package db

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// keeping is how a kind of credentials is kept: statements about the credential
// @id of @tenant, and the words that the audit log has for what happens to it.
type keeping struct {
	live   string // how many are valid at @at
	lock   string // and read when it expires by itself, and was revoked
	endAt  string // it is valid until @at; null: as long as it is not revoked
	revoke string // it is not valid any more, since @at

	noun                              string // of many
	missing, dead                     error
	rotated, revoked, kept, stillUsed string
}

var keptAs = map[metering.CredentialKind]keeping{
	metering.APIKeyCredential: {
		live:    `select count(*) from api_keys where tenant_id = @tenant and revoked_at is null and (expires_at is null or expires_at > @at)`,
		lock:    `select expires_at, revoked_at from api_keys where tenant_id = @tenant and id = @id for update`,
		endAt:   `update api_keys set expires_at = @at where tenant_id = @tenant and id = @id`,
		revoke:  `update api_keys set revoked_at = @at where tenant_id = @tenant and id = @id`,
		noun:    "API keys",
		missing: errNoAPIKey,
		dead:    metering.Errorf(metering.CodeConflict, "the key is revoked or expired; create a new one"),
		rotated: "api_key.rotate", revoked: "api_key.revoke", kept: "api_key.keep", stillUsed: "api_key.still_used",
	},
	metering.HMACSecretCredential: {
		live:    `select count(*) from hmac_secrets where tenant_id = @tenant and revoked_at is null and (expires_at is null or expires_at > @at)`,
		lock:    `select expires_at, revoked_at from hmac_secrets where tenant_id = @tenant and id = @id for update`,
		endAt:   `update hmac_secrets set expires_at = @at where tenant_id = @tenant and id = @id`,
		revoke:  `update hmac_secrets set revoked_at = @at where tenant_id = @tenant and id = @id`,
		noun:    "HMAC secrets",
		missing: errNoHMACSecret,
		dead:    metering.Errorf(metering.CodeConflict, "the secret is revoked or expired; create a new one"),
		rotated: "hmac_secret.rotate", revoked: "hmac_secret.revoke", kept: "hmac_secret.keep", stillUsed: "hmac_secret.still_used",
	},
	// An endpoint's former secret is in the endpoint's row, and forgotten once
	// it signs no more. It never expires by itself.
	metering.WebhookCredential: {
		lock:    `select null::timestamptz, null::timestamptz from webhook_endpoints where tenant_id = @tenant and id = @id for no key update`,
		endAt:   `update webhook_endpoints set former_until = @at where tenant_id = @tenant and id = @id`,
		revoke:  `update webhook_endpoints set former_secret = null, former_until = null where tenant_id = @tenant and id = @id`,
		missing: errNoEndpoint,
		rotated: "webhook.rotate_secret", revoked: "webhook.end_former_secret", kept: "webhook.keep_former_secret", stillUsed: "webhook.former_secret_used",
	},
}

// refuseMore answers CodeConflict when as many of the tenant's credentials of the kind as
// may be are live at now.
func refuseMore(ctx context.Context, tx pgx.Tx, kind metering.CredentialKind, tenant metering.TenantID, most int, now time.Time) error {
	var live int
	err := tx.QueryRow(ctx, keptAs[kind].live, pgx.NamedArgs{"tenant": tenant, "at": now}).Scan(&live)
	if err == nil && live >= most {
		err = metering.Errorf(metering.CodeConflict, "the tenant already has %d valid %s, the maximum; revoke one first", live, keptAs[kind].noun)
	}
	return err
}

// lockOld locks the old credential, which comes before any lock on its
// rotation, and returns when it expires by itself and was revoked.
func lockOld(ctx context.Context, tx pgx.Tx, r metering.Rotation) (expiresAt, revokedAt *time.Time, err error) {
	err = tx.QueryRow(ctx, keptAs[r.Kind].lock, pgx.NamedArgs{"tenant": r.TenantID, "id": r.OldID}).Scan(&expiresAt, &revokedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		err = keptAs[r.Kind].missing
	}
	return expiresAt, revokedAt, err
}

// endOldAt gives the old credential its end; nil: none.
func endOldAt(ctx context.Context, tx pgx.Tx, r metering.Rotation, at *time.Time) error {
	_, err := tx.Exec(ctx, keptAs[r.Kind].endAt, pgx.NamedArgs{"tenant": r.TenantID, "id": r.OldID, "at": at})
	return err
}

func revokeOld(ctx context.Context, tx pgx.Tx, r metering.Rotation, at time.Time) error {
	_, err := tx.Exec(ctx, keptAs[r.Kind].revoke, pgx.NamedArgs{"tenant": r.TenantID, "id": r.OldID, "at": at})
	return err
}

// auditOld writes what has happened to the old credential, and what it has become by that.
func auditOld(ctx context.Context, tx pgx.Tx, r metering.Rotation, actor metering.Actor, action string, is told) error {
	id := r.Old()
	if r.Kind == metering.WebhookCredential {
		id = metering.EndpointID(r.OldID).String()
	}
	return auditChange(ctx, tx, r.TenantID, actor, action, id, nil, is)
}
