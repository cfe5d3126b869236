package access

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Deliveries stores the deliveries of outbox messages to endpoints: due times, leases, attempts and results. It
// sends nothing: a run of the worker claims a message with Claim, sends it, and stores the result with Settle.
// A message may be sent more than once, always with the same ID and the same bytes.
type Deliveries struct{ pool pg.Beginner }

// deliveryLease is how long a workflow run holds an endpoint or a credential rotation. Once the lease has
// ended, another run can start.
const deliveryLease = time.Minute

// WantedEndpoint identifies an endpoint with a due delivery.
type WantedEndpoint struct {
	Tenant   metering.TenantID
	Endpoint metering.EndpointID
}

// Wanted leases and returns the enabled endpoints, of all tenants, that have due deliveries and no run. Only
// one caller gets each endpoint, because its lease lasts for deliveryLease. That caller starts a run.
func (s Deliveries) Wanted(ctx context.Context, now time.Time) ([]WantedEndpoint, error) {
	rows, err := s.pool.Query(ctx, `
		update webhook_endpoints e
		set lease_until = $2
		where disabled_at is null
		  and coalesce(lease_until, '-infinity') <= $1
		  and coalesce(backoff_until, '-infinity') <= $1
		  and exists (
		    select
		    from webhook_deliveries d
		    where d.tenant_id = e.tenant_id
		      and d.endpoint_id = e.id
		      and d.status = 'pending'
		      and d.due_at <= $1)
		returning tenant_id, id`, now, now.Add(deliveryLease))
	if err != nil {
		return nil, fmt.Errorf("find wanted webhooks: %w", pg.Coded(err))
	}
	wanted, err := pgx.CollectRows(rows, pgx.RowToStructByPos[WantedEndpoint])
	if err != nil {
		return nil, fmt.Errorf("find wanted webhooks: %w", pg.Coded(err))
	}
	return wanted, nil
}

// ClaimedDelivery is a message that only the caller may send until its lease ends.
type ClaimedDelivery struct {
	metering.Message
	Endpoint metering.Endpoint
	Attempt  int
	Wait     time.Duration // time to wait before sending; the lease begins afterwards
}

// Claim claims the message that has been due the longest. It returns nil if no message is due, or if the
// endpoint backs off or is disabled. It returns CodeRateLimited if the budget of the tenant or of the
// endpoint's host is used up; the message stays due.
func (s Deliveries) Claim(ctx context.Context, tenant metering.TenantID, endpoint metering.EndpointID, now time.Time, lease time.Duration) (c *ClaimedDelivery, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		c = new(ClaimedDelivery)
		var host string
		var at time.Time // by the database's clock, which all workers share
		err := tx.QueryRow(ctx, `
			select d.message_id, e.host, clock_timestamp()
			from webhook_deliveries d
			join webhook_endpoints e on e.tenant_id = d.tenant_id and e.id = d.endpoint_id
			where d.tenant_id = @tenant
			  and d.endpoint_id = @endpoint
			  and d.status = 'pending'
			  and d.due_at <= @now
			  and e.disabled_at is null
			  and coalesce(e.backoff_until, '-infinity') <= @now
			order by d.due_at, d.message_id
			limit 1
			for update of d skip locked`, pgx.NamedArgs{"tenant": tenant, "endpoint": endpoint, "now": now}).Scan(&c.ID, &host, &at)
		if errors.Is(err, pgx.ErrNoRows) {
			c = nil
			return nil
		}
		if err != nil {
			return err
		}
		if c.Wait, err = spendDelivery(ctx, tx, tenant, host, at); err != nil {
			return err
		}
		row := tx.QueryRow(ctx, `
			update webhook_deliveries d
			set attempts = attempts + 1, due_at = @until
			from outbox o, webhook_endpoints e
			where d.tenant_id = @tenant
			  and d.endpoint_id = @endpoint
			  and d.message_id = @message
			  and o.tenant_id = @tenant
			  and o.id = @message
			  and e.tenant_id = @tenant
			  and e.id = @endpoint
			returning d.attempts, o.kind, o.created_at, o.payload, `+endpointColumns, pgx.NamedArgs{
			"tenant": tenant, "endpoint": endpoint, "message": c.ID, "until": now.Add(c.Wait + lease),
		})
		return row.Scan(append([]any{&c.Attempt, &c.Kind, &c.At, &c.Data}, endpointFields(&c.Endpoint)...)...)
	})
	if err != nil {
		return nil, fmt.Errorf("claim delivery: %w", err)
	}
	return c, nil
}

// Settle stores the result of an attempt. A failed attempt schedules the next one, at least retryAfter later,
// and the endpoint backs off. After the last attempt, the delivery becomes failed. Attempt.DisablesEndpoint
// decides whether the endpoint is disabled.
func (s Deliveries) Settle(ctx context.Context, c ClaimedDelivery, attempt metering.Attempt, retryAfter time.Duration, now time.Time) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if attempt.Problem != "" { // without the lock, concurrent disabling of two endpoints of a tenant would deadlock
			if err := pg.LockAccess(ctx, tx, c.Endpoint.TenantID); err != nil {
				return err
			}
		}
		endpoint, err := lockEndpoint(ctx, tx, c.Endpoint.TenantID, c.Endpoint.ID)
		if metering.CodeOf(err) == metering.CodeNotFound {
			return nil // deleted meanwhile
		}
		if err != nil {
			return err
		}
		if err := keepAttempt(ctx, tx, c, attempt); err != nil {
			return err
		}
		if attempt.Problem == "" {
			return markDelivered(ctx, tx, c, now)
		}
		if err := recordFailure(ctx, tx, c, retryAfter, now); err != nil || endpoint.URL != c.Endpoint.URL {
			return err // the failure of a previous URL does not count against the endpoint
		}
		since, err := backOff(ctx, tx, c, attempt, retryAfter, now)
		if err != nil {
			return err
		}
		if because := attempt.DisablesEndpoint(since, now); because != "" {
			return disableFaulty(ctx, tx, endpoint.TenantID, endpoint.ID, because, now)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("settle delivery: %w", err)
	}
	return nil
}

// keepAttempt stores an attempt in the list of the delivery's attempts.
func keepAttempt(ctx context.Context, tx pgx.Tx, c ClaimedDelivery, a metering.Attempt) error {
	_, err := tx.Exec(ctx, `
		insert into webhook_attempts (tenant_id, endpoint_id, message_id, at, took, status, problem)
		select tenant_id, endpoint_id, message_id, $4, $5, $6, $7
		from webhook_deliveries
		where tenant_id = $1
		  and endpoint_id = $2
		  and message_id = $3`, c.Endpoint.TenantID, c.Endpoint.ID, c.ID, metering.Instant(a.At), a.Took, a.Status, a.Problem)
	return err
}

// markDelivered marks the delivery as delivered, and ends the endpoint's backoff and its series of failures.
func markDelivered(ctx context.Context, tx pgx.Tx, c ClaimedDelivery, now time.Time) error {
	if _, err := tx.Exec(ctx, `
		update webhook_deliveries
		set status = 'delivered', settled_at = $4
		where tenant_id = $1
		  and endpoint_id = $2
		  and message_id = $3
		  and status <> 'delivered'`, c.Endpoint.TenantID, c.Endpoint.ID, c.ID, metering.Instant(now)); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `
		update webhook_endpoints
		set failures = 0, failing_since = null, backoff_until = null
		where tenant_id = $1
		  and id = $2
		  and failures > 0`, c.Endpoint.TenantID, c.Endpoint.ID)
	return err
}

// recordFailure schedules the next attempt of a delivery after a failed one. After the last attempt, it marks
// the delivery as failed.
func recordFailure(ctx context.Context, tx pgx.Tx, c ClaimedDelivery, retryAfter time.Duration, now time.Time) error {
	wait, again := metering.RetryAfter(c.Attempt)
	status := metering.DeliveryPending
	if !again {
		status = metering.DeliveryFailed
	}
	_, err := tx.Exec(ctx, `
		update webhook_deliveries
		set status = @status, due_at = @due, settled_at = case when @status = 'failed' then @now::timestamptz end
		where tenant_id = @tenant
		  and endpoint_id = @endpoint
		  and message_id = @message
		  and status = 'pending'
		  and attempts = @attempt`, pgx.NamedArgs{
		"tenant": c.Endpoint.TenantID, "endpoint": c.Endpoint.ID, "message": c.ID, "attempt": c.Attempt,
		"status": status, "due": metering.Instant(now.Add(max(wait, retryAfter))), "now": metering.Instant(now),
	})
	return err
}

// silence is the time without attempts after which an endpoint's next failure begins a new series of
// failures. It is longer than any message waits for its next attempt.
const silence = 48 * time.Hour

// backOff makes the endpoint back off, and returns the start of its series of failures. Concurrent failed
// attempts count as one failure.
func backOff(ctx context.Context, tx pgx.Tx, c ClaimedDelivery, a metering.Attempt, retryAfter time.Duration, now time.Time) (since time.Time, err error) {
	var failures int
	err = tx.QueryRow(ctx, `
		update webhook_endpoints
		set failures = failures + 1,
		  failing_since = case when backoff_until < $5 then $4 else coalesce(failing_since, $4) end
		where tenant_id = $1
		  and id = $2
		  and coalesce(backoff_until, '-infinity') <= $3
		returning failures, failing_since`,
		c.Endpoint.TenantID, c.Endpoint.ID, metering.Instant(now), a.At, now.Add(-silence)).Scan(&failures, &since)
	if errors.Is(err, pgx.ErrNoRows) {
		return now, nil
	}
	if err != nil {
		return since, err
	}
	_, err = tx.Exec(ctx, `update webhook_endpoints set backoff_until = $3 where tenant_id = $1 and id = $2`,
		c.Endpoint.TenantID, c.Endpoint.ID, metering.Instant(now.Add(max(metering.Backoff(failures), retryAfter))))
	return since, err
}

// Waiting is the state of an endpoint's pending deliveries.
type Waiting struct {
	Messages int
	Next     *time.Time // when the next delivery is due; nil: none is pending
	Disabled metering.DisabledBecause
}

// Waiting returns the number of pending deliveries and the time of the next one. It extends the calling run's
// lease if that delivery is due now or at the end of the endpoint's backoff. Otherwise it ends the lease, so
// that another run can start once a delivery is due.
func (s Deliveries) Waiting(ctx context.Context, tenant metering.TenantID, endpoint metering.EndpointID, now time.Time) (w Waiting, err error) {
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		e, err := lockEndpoint(ctx, tx, tenant, endpoint)
		if err != nil || e.DisabledAt != nil {
			w.Disabled = e.DisabledBecause
			return err
		}
		return tx.QueryRow(ctx, `
			with waiting as (
			  select count(*) as messages, min(due_at) as due
			  from webhook_deliveries
			  where tenant_id = @tenant
			    and endpoint_id = @endpoint
			    and status = 'pending')
			update webhook_endpoints e
			set lease_until = case
			  when w.due <= greatest(e.backoff_until, @now) then greatest(e.backoff_until, @now) + @lease::interval
			end
			from waiting w
			where e.tenant_id = @tenant
			  and e.id = @endpoint
			returning w.messages, case when w.due is not null then greatest(w.due, e.backoff_until) end`, pgx.NamedArgs{
			"tenant": tenant, "endpoint": endpoint, "now": metering.Instant(now), "lease": deliveryLease,
		}).Scan(&w.Messages, &w.Next)
	})
	if err != nil {
		return Waiting{}, fmt.Errorf("list waiting deliveries: %w", err)
	}
	return w, nil
}

// Hasten ends the endpoint's backoff, and makes its pending deliveries with a failed attempt due now.
func (s Deliveries) Hasten(ctx context.Context, tenant metering.TenantID, endpoint metering.EndpointID, now time.Time) error {
	err := s.withEnabledEndpoint(ctx, tenant, endpoint, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `update webhook_endpoints set backoff_until = null where tenant_id = $1 and id = $2`, tenant, endpoint); err != nil {
			return err
		}
		return hasten(ctx, tx, tenant, endpoint, now)
	})
	if err != nil {
		return fmt.Errorf("hasten deliveries: %w", err)
	}
	return nil
}

// hasten makes pending deliveries with a failed attempt due now.
func hasten(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, endpoint metering.EndpointID, now time.Time) error {
	_, err := tx.Exec(ctx, `
		update webhook_deliveries d
		set due_at = $3
		where tenant_id = $1
		  and endpoint_id = $2
		  and status = 'pending'
		  and due_at > $3
		  and exists (
		    select
		    from webhook_attempts a
		    where a.tenant_id = d.tenant_id
		      and a.endpoint_id = d.endpoint_id
		      and a.message_id = d.message_id)`, tenant, endpoint, metering.Instant(now))
	return err
}

// Test queues a test message for the endpoint and returns the message's ID. It returns CodeConflict if the
// endpoint is disabled.
func (s Deliveries) Test(ctx context.Context, tenant metering.TenantID, endpoint metering.EndpointID, now time.Time) (id uuid.UUID, err error) {
	err = s.withEnabledEndpoint(ctx, tenant, endpoint, func(tx pgx.Tx) error {
		if id, err = uuid.NewV7(); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `insert into outbox (tenant_id, id, kind, payload, created_at) values ($1, $2, $3, $4, $5)`,
			tenant, id, metering.MessageWebhookTest, outbox.WebhookTested{OfTenant: outbox.OfTenant{TenantID: tenant.String()}, WebhookID: endpoint.String()}, metering.Instant(now)); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `insert into webhook_deliveries (tenant_id, endpoint_id, message_id, due_at) values ($1, $2, $3, $4)`,
			tenant, endpoint, id, metering.Instant(now))
		return err
	})
	if err != nil {
		return uuid.Nil, fmt.Errorf("test webhook: %w", err)
	}
	return id, nil
}

// Redeliver queues a message again, even if the message was delivered or has failed. It returns CodeConflict
// if the endpoint is disabled.
func (s Deliveries) Redeliver(ctx context.Context, tenant metering.TenantID, actor metering.Actor, endpoint metering.EndpointID, message uuid.UUID, now time.Time) error {
	err := s.withEnabledEndpoint(ctx, tenant, endpoint, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			update webhook_deliveries
			set status = 'pending', attempts = 0, due_at = $4, settled_at = null
			where tenant_id = $1
			  and endpoint_id = $2
			  and message_id = $3`, tenant, endpoint, message, metering.Instant(now))
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return errNoDelivery
		}
		return audit.RecordAction(ctx, tx, tenant, actor, "webhook.redeliver", endpoint.String()+" "+message.String())
	})
	if err != nil {
		return fmt.Errorf("redeliver: %w", err)
	}
	return nil
}

var errNoDelivery = metering.Errorf(metering.CodeNotFound, "there is no such delivery")

// withEnabledEndpoint locks the endpoint and runs fn. It returns CodeConflict if the endpoint is disabled.
func (s Deliveries) withEnabledEndpoint(ctx context.Context, tenant metering.TenantID, endpoint metering.EndpointID, fn func(tx pgx.Tx) error) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		e, err := lockEndpoint(ctx, tx, tenant, endpoint)
		if err != nil {
			return err
		}
		if e.DisabledAt != nil {
			return metering.Errorf(metering.CodeConflict, "the webhook is disabled; enable it first")
		}
		return fn(tx)
	})
}

// Sweep deletes up to limit messages created before the instant, with their deliveries. It also deletes
// delivery budgets that were last used before the instant. It returns the number of deleted messages.
func (s Deliveries) Sweep(ctx context.Context, before time.Time, limit int) (int, error) {
	tag, err := s.pool.Exec(ctx, `
		delete from outbox o
		using (select tenant_id, id from outbox where created_at < $1 order by created_at limit $2) old
		where o.tenant_id = old.tenant_id
		  and o.id = old.id`, before, limit)
	if err != nil {
		return 0, fmt.Errorf("forget messages: %w", pg.Coded(err))
	}
	if _, err := s.pool.Exec(ctx, `delete from webhook_budgets where spent < $1`, before); err != nil {
		return 0, fmt.Errorf("forget budgets: %w", pg.Coded(err))
	}
	return int(tag.RowsAffected()), nil
}
