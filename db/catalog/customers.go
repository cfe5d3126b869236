package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Customers stores customers.
type Customers struct{ pool pg.Beginner }

// CustomerColumns are the columns of a customer c, in the order of CustomerFields.
var CustomerColumns = `c.id, c.tenant_id, c.external_id, c.name, c.billing_provider_id, c.metadata, c.created_at, ` + ArchivedAt("c") + `, coalesce(c.erased_at, timestamptz '0001-01-01')`

// CustomerFields returns the destinations of CustomerColumns in a Scan.
func CustomerFields(c *metering.Customer) []any {
	return []any{&c.ID, &c.TenantID, &c.ExternalID, &c.Name, &c.BillingProviderID, &c.Metadata, &c.CreatedAt, &c.ArchivedAt, &c.ErasedAt}
}

// Create creates a customer. It returns CodeConflict if another customer has the same external_id, or is
// linked to the same customer at the provider.
func (s Customers) Create(ctx context.Context, tenant metering.TenantID, actor metering.Actor, c metering.Customer, now time.Time) (created metering.Customer, err error) {
	c = withMetadata(c)
	if err := c.Validate(); err != nil {
		return metering.Customer{}, err
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			insert into customers as c (tenant_id, external_id, name, billing_provider_id, metadata, created_at)
			values ($1, $2, $3, $4, $5, $6)
			returning `+CustomerColumns,
			tenant, c.ExternalID, c.Name, c.BillingProviderID, c.Metadata, now).Scan(CustomerFields(&created)...)
		if err != nil {
			return CustomerConflict(err)
		}
		if err := QueueAlerts(ctx, tx, tenant, created.ID); err != nil {
			return err
		}
		if created.BillingProviderID != nil {
			if err := audit.RecordChange(ctx, tx, tenant, actor, "customer.link", created.ID.String(), nil, auditedLink(created)); err != nil {
				return err
			}
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "customer.create", created.ID.String(), nil, AuditedCustomer(created))
	})
	return created, err
}

var errLinkedTwice = metering.Errorf(metering.CodeConflict, "body.billing_provider_id is already assigned to another customer; each customer needs its own")

// CustomerConflict turns the violation of a unique index of customers into CodeConflict. It returns other errors
// unchanged.
func CustomerConflict(err error) error {
	switch pg.ViolatedUnique(err) {
	case "":
		return err
	case "customers_billing_provider_id":
		return errLinkedTwice
	}
	return metering.Errorf(metering.CodeConflict, "a customer with this external_id exists already").Because(err)
}

// CustomerChange is a change of a customer. Nil fields stay unchanged.
type CustomerChange struct {
	Name              *string
	Link              bool    // change BillingProviderID
	LinkStays         bool    // the caller lacks the permission to change the link
	BillingProviderID *string // nil removes the link
	Metadata          json.RawMessage
}

// Upsert creates or changes the customer. created reports whether it was created. It returns CodeForbidden
// if the change alters the link and LinkStays is set. It returns CodeConflict, as Create does, if another
// customer has the same link.
func (s Customers) Upsert(
	ctx context.Context, tenant metering.TenantID, actor metering.Actor, externalID string, change CustomerChange, now time.Time,
) (saved metering.Customer, created bool, err error) {
	c := metering.Customer{ExternalID: externalID, BillingProviderID: change.BillingProviderID, Metadata: change.Metadata}
	if change.Name != nil {
		c.Name = *change.Name
	}
	if err := c.Validate(); err != nil {
		return metering.Customer{}, false, err
	}
	var metadata *string
	if len(change.Metadata) > 0 {
		metadata = new(string(change.Metadata))
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		former, err := lockCustomerIfExists(ctx, tx, tenant, externalID)
		if err != nil {
			return err
		}
		links, err := changesLink(former.BillingProviderID, change)
		if err != nil {
			return err
		}
		err = tx.QueryRow(ctx, `
			insert into customers as c (tenant_id, external_id, name, billing_provider_id, metadata, created_at)
			values (@tenant, @external_id, coalesce(@name, ''), @billing_provider_id, coalesce(@metadata::jsonb, '{}'), @now)
			on conflict (tenant_id, external_id) do update
			set name = coalesce(@name, c.name), metadata = coalesce(@metadata::jsonb, c.metadata),
			  billing_provider_id = case when @link then @billing_provider_id else c.billing_provider_id end
			returning `+CustomerColumns+`, xmax = 0`, pgx.NamedArgs{
			"tenant": tenant, "external_id": externalID, "name": change.Name, "link": links,
			"billing_provider_id": change.BillingProviderID, "metadata": metadata, "now": now,
		}).Scan(append(CustomerFields(&saved), &created)...)
		if err != nil {
			return CustomerConflict(err)
		}
		if err := QueueAlerts(ctx, tx, tenant, saved.ID); err != nil {
			return err
		}
		if links {
			if err := audit.RecordChange(ctx, tx, tenant, actor, "customer.link", saved.ID.String(), auditedLink(former), auditedLink(saved)); err != nil {
				return err
			}
		}
		if created {
			return audit.RecordChange(ctx, tx, tenant, actor, "customer.upsert", saved.ID.String(), nil, AuditedCustomer(saved))
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "customer.upsert", saved.ID.String(), AuditedCustomer(former), AuditedCustomer(saved))
	})
	return saved, created, err
}

// changesLink reports whether a change links the customer to another customer at the provider, or removes the
// link. It returns CodeForbidden if the change does so although LinkStays is set.
func changesLink(now *string, change CustomerChange) (bool, error) {
	if !change.Link {
		return false, nil
	}
	if same := now == nil && change.BillingProviderID == nil || now != nil && change.BillingProviderID != nil && *now == *change.BillingProviderID; same {
		return false, nil
	}
	if change.LinkStays {
		return false, metering.Errorf(metering.CodeForbidden, "body.billing_provider_id sets whom the provider charges; changing it needs the permission billing:write")
	}
	return true, nil
}

// lockCustomerIfExists returns the customer and locks it until the transaction ends. It returns the zero
// customer if there is none.
func lockCustomerIfExists(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, externalID string) (c metering.Customer, err error) {
	err = tx.QueryRow(ctx, `
		select `+CustomerColumns+`
		from customers c
		where c.tenant_id = $1
		  and c.external_id = $2
		for update`, tenant, externalID).Scan(CustomerFields(&c)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Customer{}, nil
	}
	return c, err
}

var ErrNoCustomer = metering.Errorf(metering.CodeNotFound, "there is no customer with this external_id")

// LockCustomer returns the customer and locks it until the transaction ends, or returns
// CodeNotFound.
func LockCustomer(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, externalID string) (metering.Customer, error) {
	c, err := lockCustomerIfExists(ctx, tx, tenant, externalID)
	if err == nil && c.ID == 0 {
		err = ErrNoCustomer
	}
	return c, err
}

func withMetadata(c metering.Customer) metering.Customer {
	if len(c.Metadata) == 0 {
		c.Metadata = json.RawMessage(`{}`)
	}
	return c
}

// Get returns the customer with that external_id, or CodeNotFound.
func (s Customers) Get(ctx context.Context, tenant metering.TenantID, externalID string) (c metering.Customer, err error) {
	err = s.pool.QueryRow(ctx, `select `+CustomerColumns+` from customers c where c.tenant_id = $1 and c.external_id = $2`,
		tenant, externalID).Scan(CustomerFields(&c)...)
	if coded := pg.Coded(err); metering.CodeOf(coded) == metering.CodeNotFound {
		return c, ErrNoCustomer.Because(err)
	}
	return c, pg.Coded(err)
}

// GetByID returns the customer with that ID, or CodeNotFound.
func (s Customers) GetByID(ctx context.Context, tenant metering.TenantID, id metering.CustomerID) (c metering.Customer, err error) {
	err = s.pool.QueryRow(ctx, `select `+CustomerColumns+` from customers c where c.tenant_id = $1 and c.id = $2`, tenant, id).Scan(CustomerFields(&c)...)
	if errors.Is(err, pgx.ErrNoRows) {
		return c, metering.Errorf(metering.CodeNotFound, "there is no customer with this id").Because(err)
	}
	return c, pg.Coded(err)
}

// List returns the next customers in order of creation, at most limit. It begins after the customer with the given
// ID. It includes archived customers only if archived is true. The search matches a part of the name or of the
// external_id in either case, or a whole ID or billing_provider_id. An empty search matches every customer.
func (s Customers) List(ctx context.Context, tenant metering.TenantID, after metering.CustomerID, limit int, archived bool, search string) (page pg.Page[metering.Customer], err error) {
	rows, err := s.pool.Query(ctx, `
		select `+CustomerColumns+` from customers c
		where c.tenant_id = $1 and c.id > $2 and ($4 or c.archived_at is null) and ($5 = ''
			or strpos(`+caseless("c.external_id")+`, `+caseless("$5")+`) > 0 or strpos(`+caseless("c.name")+`, `+caseless("$5")+`) > 0
			or c.billing_provider_id = $5 or $6 = c.id)
		order by c.id
		limit $3`, tenant, after, limit+1, archived, search, customerNamed(search))
	if err != nil {
		return page, pg.Coded(err)
	}
	page, err = pg.ReadPage(ctx, rows, limit, func(row pgx.CollectableRow) (c metering.Customer, err error) {
		return c, row.Scan(CustomerFields(&c)...)
	})
	return page, pg.Coded(err)
}

// IDs returns the next customers in order of creation, at most limit. It begins after the given ID.
func (s Customers) IDs(ctx context.Context, tenant metering.TenantID, after metering.CustomerID, limit int) ([]metering.CustomerID, error) {
	ids, err := CustomerIDs[metering.CustomerID](ctx, s.pool, tenant, after, limit)
	return ids, pg.Coded(err)
}

func CustomerIDs[ID ~int64](ctx context.Context, q pg.Querier, tenant metering.TenantID, after metering.CustomerID, limit int) ([]ID, error) {
	rows, err := q.Query(ctx, `
		select id
		from customers
		where tenant_id = $1
		  and id > $2
		order by id
		limit $3`, tenant, after, limit)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[ID])
}

// caseless returns the SQL of a text for comparisons without case, with the same collation in every
// database. It uses upper case, because σ and ς share one, and because the lower case of Σ depends on the
// adjacent letters.
func caseless(text string) string { return `upper(` + text + ` collate "und-x-icu")` }

// customerNamed returns the customer ID that a text spells, or 0, which is the ID of no customer.
func customerNamed(text string) metering.CustomerID {
	id, _ := metering.ParseCustomerID(text)
	return id
}

// KnownCustomer is a customer that ingest has found or created.
type KnownCustomer struct {
	ID    metering.CustomerID
	Since time.Time // time of creation
}

// Resolve returns the customers of the external IDs, and creates the missing ones. seenAt maps each external ID to the
// instant at which it was first seen. This becomes the creation time of a created customer. A separate statement,
// sorted by external ID, inserts the missing customers, so that ingest never holds a lock on a customer.
func (s Customers) Resolve(ctx context.Context, tenant metering.TenantID, seenAt map[string]time.Time) (map[string]KnownCustomer, error) {
	externalIDs := slices.Sorted(maps.Keys(seenAt))
	found := make(map[string]KnownCustomer, len(externalIDs))
	if err := s.find(ctx, tenant, externalIDs, found); err != nil || len(found) == len(externalIDs) {
		return found, err
	}
	missing := slices.DeleteFunc(externalIDs, func(id string) bool { _, ok := found[id]; return ok })
	since := make([]time.Time, len(missing))
	for i, id := range missing {
		since[i] = seenAt[id]
	}
	_, err := s.pool.Exec(ctx, `
		insert into customers (tenant_id, external_id, created_at)
		select $1, external_id, since from unnest($2::text[], $3::timestamptz[]) as unknown (external_id, since)
		order by external_id collate "C"
		on conflict do nothing`, tenant, missing, since)
	if err != nil {
		return nil, pg.Coded(err)
	}
	return found, s.find(ctx, tenant, missing, found)
}

// find adds the existing customers with these external IDs to into.
func (s Customers) find(ctx context.Context, tenant metering.TenantID, externalIDs []string, into map[string]KnownCustomer) error {
	rows, err := s.pool.Query(ctx, `select external_id, id, created_at from customers where tenant_id = $1 and external_id = any($2)`, tenant, externalIDs)
	if err != nil {
		return pg.Coded(err)
	}
	var externalID string
	var c KnownCustomer
	_, err = pgx.ForEachRow(rows, []any{&externalID, &c.ID, &c.Since}, func() error {
		into[externalID] = c
		return nil
	})
	return pg.Coded(err)
}

func AuditedCustomer(c metering.Customer) audit.Fields {
	fields := auditedLink(c)
	fields["external_id"], fields["name"], fields["metadata"] = audit.Personal(c.ExternalID), audit.Personal(c.Name), audit.Personal(c.Metadata)
	return fields
}

// auditedLink returns the provider's customer that is charged for c.
func auditedLink(c metering.Customer) audit.Fields {
	if c.BillingProviderID == nil {
		return audit.Fields{"billing_provider_id": nil}
	}
	return audit.Fields{"billing_provider_id": audit.Personal(*c.BillingProviderID)}
}

// SetField sets field to *value, unless value is nil.
func SetField[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}
