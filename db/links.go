package db

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/odometer-metering/odometer/metering"
)

// Links are what customers are at their billing provider, as it was last read
// there.
type Links struct{ pool *pgxpool.Pool }

// Wanted is what has to be looked up to link a customer.
type Wanted struct {
	Provider metering.Provider
	Customer string // at the provider; "": the customer names none
	Shared   bool   // another customer names it too, and was there first
	Meters   []metering.Meter
}

// Wanted returns what has to be looked up, or CodeNoProvider.
func (l Links) Wanted(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID) (w Wanted, err error) {
	if w.Provider, err = activeProvider(ctx, l.pool, tenant); err != nil {
		return Wanted{}, err
	}
	var named *string
	err = l.pool.QueryRow(ctx, `
		select c.billing_provider_id, exists (
		  select
		  from customers o
		  where o.tenant_id = c.tenant_id
		    and o.billing_provider_id = c.billing_provider_id
		    and o.id < c.id)
		from customers c
		where c.tenant_id = $1
		  and c.id = $2`, tenant, customer).Scan(&named, &w.Shared)
	if errors.Is(err, pgx.ErrNoRows) {
		return Wanted{}, metering.Errorf(metering.CodeNotFound, "there is no such customer")
	}
	if err != nil {
		return Wanted{}, fmt.Errorf("read customer: %w", coded(err))
	}
	if named != nil {
		w.Customer = *named
	}
	if w.Meters, err = collectMeters(ctx, l.pool, `order by m.id`, tenant); err != nil {
		return Wanted{}, fmt.Errorf("list meters: %w", coded(err))
	}
	return w, nil
}

// Save keeps what the provider said at readAt, unless something later is kept.
func (l Links) Save(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, link metering.Link, readAt time.Time) error {
	if link.Items == nil {
		link.Items = []metering.Item{}
	}
	_, err := l.pool.Exec(ctx, `
		insert into billing_links as l
		  (tenant_id, customer_id, provider_account, provider_customer, subscription, period_start, period_end, items, read_at)
		values (@tenant, @customer, @account, @at_provider, @subscription, @start, @end, @items, @read_at)
		on conflict (tenant_id, customer_id) do update
		set provider_account = excluded.provider_account, provider_customer = excluded.provider_customer,
		  subscription = excluded.subscription, period_start = excluded.period_start, period_end = excluded.period_end,
		  items = excluded.items, read_at = excluded.read_at
		where l.read_at <= excluded.read_at`, pgx.NamedArgs{
		"tenant": tenant, "customer": customer, "account": link.Account, "at_provider": link.Customer,
		"subscription": link.Subscription, "start": link.Period.Start, "end": link.Period.End, "items": link.Items, "read_at": readAt,
	})
	if err != nil {
		return fmt.Errorf("save link: %w", coded(err))
	}
	return nil
}

// ItemIDs are the subscription items that the customer's meters go to.
func (l Links) ItemIDs(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID) (map[string]bool, error) {
	var items []metering.Item
	err := l.pool.QueryRow(ctx, `select items from billing_links where tenant_id = $1 and customer_id = $2`, tenant, customer).Scan(&items)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("read link: %w", coded(err))
	}
	ids := make(map[string]bool)
	for _, i := range items {
		ids[i.ItemID] = i.ItemID != ""
	}
	return ids, nil
}

// Skipped says why meters of the customer's go nowhere at the provider, as it
// was last read there.
func (l Links) Skipped(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID) (map[metering.MeterID]string, error) {
	provider, err := activeProvider(ctx, l.pool, tenant)
	if metering.CodeOf(err) == metering.CodeNoProvider {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	link, err := readLink(ctx, l.pool, tenant, customer, provider.Account)
	if err != nil && metering.CodeOf(err) != metering.CodeConflict { // it has not been read yet
		return nil, fmt.Errorf("read link: %w", coded(err))
	}
	reasons := make(map[metering.MeterID]string)
	for _, i := range link.Items {
		reasons[i.MeterID] = i.Skipped
	}
	return reasons, nil
}

// readLink returns the customer's link, as long as it is to the account and to
// the customer there that it should be to, else CodeConflict.
func readLink(ctx context.Context, q querier, tenant metering.TenantID, customer metering.CustomerID, account string) (metering.Link, error) {
	var link metering.Link
	err := q.QueryRow(ctx, `
		select l.provider_account, l.provider_customer, l.subscription, l.period_start, l.period_end, l.items
		from billing_links l
		join customers c on c.tenant_id = l.tenant_id and c.id = l.customer_id
		where l.tenant_id = $1
		  and l.customer_id = $2
		  and l.provider_account = $3
		  and l.provider_customer = coalesce(c.billing_provider_id, '')`, tenant, customer, account,
	).Scan(&link.Account, &link.Customer, &link.Subscription, &link.Period.Start, &link.Period.End, &link.Items)
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Link{}, errLinkChanged
	}
	return link, err
}

var errLinkChanged = metering.Errorf(metering.CodeConflict, "the customer's link to the provider has changed")
