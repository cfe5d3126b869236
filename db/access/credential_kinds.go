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

// credentialKind contains, for one kind of credential, its limit, its errors and its actions in the audit log.
// It also contains the SQL statements that change the old credential of a rotation. Their arguments are
// @tenant, @kind and @id.
type credentialKind struct {
	limit                                      pg.Limit
	missing, dead                              error
	created, rotated, revoked, kept, stillUsed string

	lock   string // locks the credential, and returns its expiry and its revocation
	endAt  string // sets the expiry to @at; null: valid until it is revoked
	revoke string // revokes the credential at @at
}

var credentialKinds = map[metering.CredentialKind]credentialKind{
	metering.APIKeyCredential:     kindInTable(metering.APIKeyCredential, metering.MaxAPIKeys),
	metering.HMACSecretCredential: kindInTable(metering.HMACSecretCredential, metering.MaxHMACSecrets),
	// The previous signing secret of an endpoint is stored in the endpoint's row, and is deleted when it stops
	// signing. The current secret has no expiry and is never revoked, so lock returns two nulls.
	metering.WebhookCredential: {
		missing: errNoEndpoint,
		rotated: "webhook.rotate_secret", revoked: "webhook.end_former_secret", kept: "webhook.keep_former_secret", stillUsed: "webhook.former_secret_used",
		lock:   `select null::timestamptz, null::timestamptz from webhook_endpoints where tenant_id = @tenant and id = @id for no key update`,
		endAt:  `update webhook_endpoints set former_until = @at where tenant_id = @tenant and id = @id`,
		revoke: `update webhook_endpoints set former_secret = null, former_until = null where tenant_id = @tenant and id = @id`,
	},
}

// kindInTable returns the kind of credentials that are rows of table credentials.
func kindInTable(kind metering.CredentialKind, most int) credentialKind {
	return credentialKind{
		limit: pg.Limit{
			Count: `select count(*) from credentials where tenant_id = @tenant and kind = '` + string(kind) + `' and revoked_at is null and (expires_at is null or expires_at > @now)`,
			Most:  most, Noun: "valid " + kind.Noun() + "s", Fix: "revoke one first",
		},
		missing: metering.Errorf(metering.CodeNotFound, "there is no such %s", kind.Noun()),
		dead:    metering.Errorf(metering.CodeConflict, "the %s is revoked or expired; create a new one", kind.ShortNoun()),
		created: string(kind) + ".create", rotated: string(kind) + ".rotate", revoked: string(kind) + ".revoke",
		kept: string(kind) + ".keep", stillUsed: string(kind) + ".still_used",
		lock:   `select expires_at, revoked_at from credentials where tenant_id = @tenant and kind = @kind and id = @id for update`,
		endAt:  `update credentials set expires_at = @at where tenant_id = @tenant and kind = @kind and id = @id`,
		revoke: `update credentials set revoked_at = @at where tenant_id = @tenant and kind = @kind and id = @id`,
	}
}

// lockOld locks the old credential, and returns its expiry and the time of its revocation. Call it before
// locking the credential's rotation.
func lockOld(ctx context.Context, tx pgx.Tx, r metering.Rotation) (expiresAt, revokedAt *time.Time, err error) {
	err = tx.QueryRow(ctx, credentialKinds[r.OldID.Kind].lock, oldCredential(r, nil)).Scan(&expiresAt, &revokedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		err = credentialKinds[r.OldID.Kind].missing
	}
	return expiresAt, revokedAt, err
}

// endOldAt sets the expiry of the old credential; nil removes it.
func endOldAt(ctx context.Context, tx pgx.Tx, r metering.Rotation, at *time.Time) error {
	_, err := tx.Exec(ctx, credentialKinds[r.OldID.Kind].endAt, oldCredential(r, at))
	return err
}

func revokeOld(ctx context.Context, tx pgx.Tx, r metering.Rotation, at time.Time) error {
	_, err := tx.Exec(ctx, credentialKinds[r.OldID.Kind].revoke, oldCredential(r, &at))
	return err
}

func oldCredential(r metering.Rotation, at *time.Time) pgx.NamedArgs {
	return pgx.NamedArgs{"tenant": r.TenantID, "kind": r.OldID.Kind, "id": r.OldID.Number, "at": at}
}

// auditOld records in the audit log an action on the old credential, with the changed fields.
func auditOld(ctx context.Context, tx pgx.Tx, r metering.Rotation, actor metering.Actor, action string, is audit.Fields) error {
	return audit.RecordChange(ctx, tx, r.TenantID, actor, action, r.OldID.String(), nil, is)
}
