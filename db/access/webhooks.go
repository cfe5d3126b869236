package access

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Webhooks manages the endpoints to which tenants' messages are delivered.
type Webhooks struct{ pool pg.Beginner }

const endpointColumns = `e.tenant_id, e.id, e.url, e.description, e.event_types, e.secret, e.secret_last_four, e.former_secret, e.former_until,
	e.created_at, e.disabled_at, coalesce(e.disabled_because, ''), e.failing_since`

func endpointFields(e *metering.Endpoint) []any {
	return []any{
		&e.TenantID, &e.ID, &e.URL, &e.Description, &e.EventTypes, &e.Sealed, &e.LastFour, &e.SealedFormer, &e.FormerUntil,
		&e.CreatedAt, &e.DisabledAt, &e.DisabledBecause, &e.FailingSince,
	}
}

// urlConflict turns the violation of a unique index into CodeConflict, because another webhook of the tenant
// has the URL. It returns other errors unchanged.
func urlConflict(err error) error {
	if pg.ViolatedUnique(err) == "" {
		return err
	}
	return metering.Errorf(metering.CodeConflict, "another webhook of the tenant has this URL").Because(err)
}

var errNoEndpoint = metering.Errorf(metering.CodeNotFound, "there is no such webhook")

var webhookLimit = pg.Limit{
	Count: `select count(*) from webhook_endpoints where tenant_id = @tenant`,
	Most:  metering.MaxEndpoints, Noun: "webhooks", Fix: "delete one first",
}

// Create stores an endpoint with a secret that the caller has sealed. It fails with CodeConflict if the
// tenant has the maximum number of endpoints, or another endpoint with this URL.
func (s Webhooks) Create(ctx context.Context, tenant metering.TenantID, actor metering.Actor, e metering.Endpoint, now time.Time) (made metering.Endpoint, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.LockAccess(ctx, tx, tenant); err != nil {
			return err
		}
		if err := pg.RequireRoom(ctx, tx, tenant, webhookLimit); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `
			insert into webhook_endpoints as e (tenant_id, url, host, description, event_types, secret, secret_last_four, created_at, created_by)
			values (@tenant, @url, @host, @description, @event_types, @secret, @last_four, @now, @actor)
			returning `+endpointColumns, pgx.NamedArgs{
			"tenant": tenant, "url": e.URL, "host": hostOf(e.URL), "description": e.Description, "event_types": e.EventTypes, "secret": e.Sealed,
			"last_four": e.LastFour, "now": metering.Instant(now), "actor": actor,
		}).Scan(endpointFields(&made)...)
		if err != nil {
			return urlConflict(err)
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "webhook.create", made.ID.String(), nil, auditedEndpoint(made))
	})
	if err != nil {
		return metering.Endpoint{}, fmt.Errorf("create webhook: %w", err)
	}
	return made, nil
}

// Get returns an endpoint, its secrets still sealed, or CodeNotFound.
func (s Webhooks) Get(ctx context.Context, tenant metering.TenantID, id metering.EndpointID) (e metering.Endpoint, err error) {
	return getEndpoint(ctx, s.pool, tenant, id, "")
}

// lockEndpoint locks an endpoint and returns it. Every transaction that changes an endpoint or its
// deliveries calls it first, to avoid deadlocks.
func lockEndpoint(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, id metering.EndpointID) (metering.Endpoint, error) {
	return getEndpoint(ctx, tx, tenant, id, "for no key update")
}

func getEndpoint(ctx context.Context, q pg.Querier, tenant metering.TenantID, id metering.EndpointID, lock string) (e metering.Endpoint, err error) {
	err = q.QueryRow(ctx, `select `+endpointColumns+` from webhook_endpoints e where e.tenant_id = $1 and e.id = $2 `+lock,
		tenant, id).Scan(endpointFields(&e)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return e, errNoEndpoint
	}
	if err != nil {
		return e, fmt.Errorf("read webhook: %w", pg.Coded(err))
	}
	return e, nil
}

// List returns the tenant's endpoints, oldest first.
func (s Webhooks) List(ctx context.Context, tenant metering.TenantID) ([]metering.Endpoint, error) {
	rows, err := s.pool.Query(ctx, `select `+endpointColumns+` from webhook_endpoints e where e.tenant_id = $1 order by e.id`, tenant)
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", pg.Coded(err))
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e metering.Endpoint, err error) {
		return e, row.Scan(endpointFields(&e)...)
	})
	if err != nil {
		return nil, fmt.Errorf("list webhooks: %w", pg.Coded(err))
	}
	return list, nil
}

// EndpointChange is the set of fields to change; nil fields keep their values.
type EndpointChange struct {
	URL         *string
	Description *string
	EventTypes  []metering.MessageKind
	Enabled     *bool
}

func (c EndpointChange) host() *string {
	if c.URL == nil {
		return nil
	}
	return new(hostOf(*c.URL))
}

// hostOf returns the host of a URL in canonical form, without the port, because all ports share one
// machine.
func hostOf(address string) string {
	parsed, err := url.Parse(address)
	if err != nil {
		return "" // no endpoint has such a URL
	}
	host := strings.ToLower(strings.TrimSuffix(parsed.Hostname(), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().WithZone("").String()
	}
	return host
}

// Update changes an endpoint. Disabling the endpoint fails its pending deliveries. Enabling it, or changing its
// URL, resets its failures and makes its pending deliveries with a failed attempt due at once.
func (s Webhooks) Update(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.EndpointID, change EndpointChange, now time.Time) (changed metering.Endpoint, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		former, err := lockEndpoint(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			update webhook_endpoints
			set url = coalesce(@url, url), host = coalesce(@host, host), description = coalesce(@description, description), event_types = coalesce(@event_types, event_types)
			where tenant_id = @tenant
			  and id = @id`, pgx.NamedArgs{
			"tenant": tenant, "id": id, "url": change.URL, "host": change.host(), "description": change.Description, "event_types": change.EventTypes,
		})
		if err == nil && change.Enabled != nil && !*change.Enabled {
			_, err = disable(ctx, tx, tenant, id, metering.DisabledByTenant, now)
		}
		if err == nil && (change.Enabled != nil && *change.Enabled || change.URL != nil) {
			err = resetFailures(ctx, tx, tenant, id, change.Enabled != nil && *change.Enabled, now)
		}
		if err != nil {
			return urlConflict(err)
		}
		if changed, err = lockEndpoint(ctx, tx, tenant, id); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "webhook.update", id.String(), auditedEndpoint(former), auditedEndpoint(changed))
	})
	if err != nil {
		return metering.Endpoint{}, fmt.Errorf("update webhook: %w", err)
	}
	return changed, nil
}

// disableFaulty disables an endpoint that cannot receive messages, and publishes a message about it to the
// tenant's other endpoints.
func disableFaulty(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, id metering.EndpointID, because metering.DisabledBecause, now time.Time) error {
	disabled, err := disable(ctx, tx, tenant, id, because, now)
	if err != nil || !disabled {
		return err
	}
	return outbox.Publish(ctx, tx, tenant, metering.WholeTenant, outbox.WebhookDisabled{WebhookID: id.String(), Because: because}, now)
}

// disable disables an endpoint that the caller has locked, and fails its pending deliveries. It waits for
// transactions that publish to the endpoint; later transactions see that the endpoint is disabled. It reports
// whether the endpoint was enabled.
func disable(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, id metering.EndpointID, because metering.DisabledBecause, now time.Time) (disabled bool, err error) {
	if _, err := tx.Exec(ctx, `select from webhook_endpoints where tenant_id = $1 and id = $2 for update`, tenant, id); err != nil {
		return false, err
	}
	tag, err := tx.Exec(ctx, `
		update webhook_endpoints
		set disabled_at = $3, disabled_because = $4
		where tenant_id = $1
		  and id = $2
		  and disabled_at is null`, tenant, id, metering.Instant(now), because)
	if err != nil || tag.RowsAffected() == 0 {
		return false, err
	}
	_, err = tx.Exec(ctx, `
		update webhook_deliveries
		set status = 'failed', settled_at = $3
		where tenant_id = $1
		  and endpoint_id = $2
		  and status = 'pending'`, tenant, id, metering.Instant(now))
	return true, err
}

// resetFailures resets the endpoint's failures, and makes its pending deliveries with a failed attempt due at once. If
// enable is true, it also enables the endpoint.
func resetFailures(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, id metering.EndpointID, enable bool, now time.Time) error {
	_, err := tx.Exec(ctx, `
		update webhook_endpoints
		set failures = 0, failing_since = null, backoff_until = null, lease_until = null,
		  disabled_at = case when $3 then null else disabled_at end,
		  disabled_because = case when $3 then null else disabled_because end
		where tenant_id = $1
		  and id = $2`, tenant, id, enable)
	if err != nil {
		return err
	}
	return hasten(ctx, tx, tenant, id, now)
}

// Delete deletes an endpoint and its deliveries.
func (s Webhooks) Delete(ctx context.Context, tenant metering.TenantID, actor metering.Actor, id metering.EndpointID) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		former, err := lockEndpoint(ctx, tx, tenant, id)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `delete from webhook_endpoints where tenant_id = $1 and id = $2`, tenant, id); err != nil {
			return err
		}
		if err := endRevokedRotation(ctx, tx, tenant, webhookSecret(id)); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "webhook.delete", id.String(), auditedEndpoint(former), nil)
	})
	if err != nil {
		return fmt.Errorf("delete webhook: %w", err)
	}
	return nil
}

func auditedEndpoint(e metering.Endpoint) audit.Fields {
	return audit.Fields{
		"url": audit.Personal(e.URL), "description": e.Description, "event_types": e.EventTypes, "enabled": e.DisabledAt == nil, "secret": audit.Secret(e.Sealed != nil),
	}
}
