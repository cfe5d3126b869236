package access

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/metering"
)

// credentialSQL contains, for one kind of credential, the SQL that locks, expires and revokes the old
// credential @id of @tenant. It also contains the errors of the kind and its actions in the audit log.
type credentialSQL struct {
	lock   string // locks the credential, and returns its expiry and its revocation
	endAt  string // sets the expiry to @at; null: valid until it is revoked
	revoke string // revokes the credential at @at

	missing, dead                     error
	rotated, revoked, kept, stillUsed string
}

var credentialSQLs = map[metering.CredentialKind]credentialSQL{
	metering.APIKeyCredential: {
		lock:    `select expires_at, revoked_at from api_keys where tenant_id = @tenant and id = @id for update`,
		endAt:   `update api_keys set expires_at = @at where tenant_id = @tenant and id = @id`,
		revoke:  `update api_keys set revoked_at = @at where tenant_id = @tenant and id = @id`,
		missing: errNoAPIKey,
		dead:    metering.Errorf(metering.CodeConflict, "the key is revoked or expired; create a new one"),
		rotated: "api_key.rotate", revoked: "api_key.revoke", kept: "api_key.keep", stillUsed: "api_key.still_used",
	},
	metering.HMACSecretCredential: {
		lock:    `select expires_at, revoked_at from hmac_secrets where tenant_id = @tenant and id = @id for update`,
		endAt:   `update hmac_secrets set expires_at = @at where tenant_id = @tenant and id = @id`,
		revoke:  `update hmac_secrets set revoked_at = @at where tenant_id = @tenant and id = @id`,
		missing: errNoHMACSecret,
		dead:    metering.Errorf(metering.CodeConflict, "the secret is revoked or expired; create a new one"),
		rotated: "hmac_secret.rotate", revoked: "hmac_secret.revoke", kept: "hmac_secret.keep", stillUsed: "hmac_secret.still_used",
	},
	// The previous secret of an endpoint is in the endpoint's row, and is deleted when it stops signing. It
	// has no expiry of its own.
	metering.WebhookCredential: {
		lock:    `select null::timestamptz, null::timestamptz from webhook_endpoints where tenant_id = @tenant and id = @id for no key update`,
		endAt:   `update webhook_endpoints set former_until = @at where tenant_id = @tenant and id = @id`,
		revoke:  `update webhook_endpoints set former_secret = null, former_until = null where tenant_id = @tenant and id = @id`,
		missing: errNoEndpoint,
		rotated: "webhook.rotate_secret", revoked: "webhook.end_former_secret", kept: "webhook.keep_former_secret", stillUsed: "webhook.former_secret_used",
	},
}

// lockOld locks the old credential, and returns its expiry and the time of its revocation. Call it before
// locking the credential's rotation.
func lockOld(ctx context.Context, tx pgx.Tx, r metering.Rotation) (expiresAt, revokedAt *time.Time, err error) {
	err = tx.QueryRow(ctx, credentialSQLs[r.Kind].lock, pgx.NamedArgs{"tenant": r.TenantID, "id": r.OldID}).Scan(&expiresAt, &revokedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		err = credentialSQLs[r.Kind].missing
	}
	return expiresAt, revokedAt, err
}

// endOldAt sets the expiry of the old credential; nil removes it.
func endOldAt(ctx context.Context, tx pgx.Tx, r metering.Rotation, at *time.Time) error {
	_, err := tx.Exec(ctx, credentialSQLs[r.Kind].endAt, pgx.NamedArgs{"tenant": r.TenantID, "id": r.OldID, "at": at})
	return err
}

func revokeOld(ctx context.Context, tx pgx.Tx, r metering.Rotation, at time.Time) error {
	_, err := tx.Exec(ctx, credentialSQLs[r.Kind].revoke, pgx.NamedArgs{"tenant": r.TenantID, "id": r.OldID, "at": at})
	return err
}

// auditOld records in the audit log an action on the old credential, with the changed fields.
func auditOld(ctx context.Context, tx pgx.Tx, r metering.Rotation, actor metering.Actor, action string, is audit.Fields) error {
	id := r.Old()
	if r.Kind == metering.WebhookCredential {
		id = metering.EndpointID(r.OldID).String()
	}
	return audit.RecordChange(ctx, tx, r.TenantID, actor, action, id, nil, is)
}

func auditedCredential(name string, scope metering.Scope, lastFour string, expiresAt *time.Time) audit.Fields {
	return audit.Fields{"name": name, "scope": scope, "last_four": lastFour, "expires_at": expiresAt, "secret": audit.Secret(true)}
}
