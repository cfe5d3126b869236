package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// Prices stores the versions of the prices of each meter: its own price, and prices of plans and customers.
type Prices struct{ pool pg.Beginner }

// PriceOwner is the plan or the customer that has prices. If both are 0, the prices are the meters' own.
type PriceOwner struct {
	Plan     metering.PlanID
	Customer metering.CustomerID
}

const SelectPrices = `
	select p.meter_id, coalesce(p.plan_id, 0), coalesce(p.customer_id, 0), p.version, coalesce(t.terms, '{}'), p.terms is null, p.effective_from, p.created_at
	from meter_prices p
	left join price_terms t on t.tenant_id = p.tenant_id and t.hash = p.terms
	where p.tenant_id = $1
	  and p.withdrawn_at is null `

// OfCatalog is the SQL that restricts SelectPrices to the prices of meters and plans, without prices of customers.
const OfCatalog = `and p.customer_id is null order by p.meter_id, p.version`

// ownerCondition is the SQL condition that a price p is of @plan and @customer, each of which may be 0.
const ownerCondition = `coalesce(p.plan_id, 0) = @plan and coalesce(p.customer_id, 0) = @customer`

func ScanPrice(row pgx.CollectableRow) (p billing.Price, err error) {
	return p, row.Scan(&p.MeterID, &p.PlanID, &p.CustomerID, &p.Version, &p.Terms, &p.Inherits, &p.EffectiveFrom, &p.CreatedAt)
}

// insertTerms stores terms if they are new. TermsOf selects the terms of version @price_version of the
// price of @meter, or null. Both are SQL.
const (
	insertTerms = `
		insert into price_terms (tenant_id, hash, schema, terms)
		values (@tenant, @hash, @schema, @terms)
		on conflict (tenant_id, hash) do nothing`
	TermsOf = `(
			  select m.terms
			  from meter_prices m
			  where m.tenant_id = @tenant
			    and m.meter_id = @meter
			    and m.version = @price_version)`
)

func collectPrices(ctx context.Context, q pg.Querier, where string, args ...any) ([]billing.Price, error) {
	rows, err := q.Query(ctx, SelectPrices+where, args...)
	if err != nil {
		return nil, pg.Coded(err)
	}
	prices, err := pgx.CollectRows(rows, ScanPrice)
	return prices, pg.Coded(err)
}

// Set adds a version to a meter's price: its own, a plan's or a customer's. It withdraws the version with the
// same EffectiveFrom. It returns CodeConflict for a zero EffectiveFrom (from the beginning) if the owner
// already has a price of the meter. It also returns the errors of RefuseDimensions and RefuseBesideQuantities.
func (s Prices) Set(ctx context.Context, tenant metering.TenantID, actor metering.Actor, p billing.Price) (_ billing.Price, err error) {
	if err := p.Validate(); err != nil {
		return billing.Price{}, err
	}
	err = pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := RaiseRevision(ctx, tx, tenant); err != nil {
			return err
		}
		if err := lockBesideQuantities(ctx, tx, tenant, p.Terms); err != nil {
			return err
		}
		// The lock on the meter orders concurrent changes.
		tag, err := tx.Exec(ctx, `select from meters where tenant_id = $1 and id = $2 for update`, tenant, p.MeterID)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return metering.Errorf(metering.CodeNotFound, "there is no such meter")
		}
		if err := refuseDimensions(ctx, tx, tenant, p.MeterID, p.Terms); err != nil {
			return err
		}
		for _, refuse := range []func(context.Context, pgx.Tx, metering.TenantID, billing.Price) error{refuseBeginning, refuseEnd} {
			if err := refuse(ctx, tx, tenant, p); err != nil {
				return err
			}
		}
		if err := storePrice(ctx, tx, tenant, actor, &p); err != nil {
			return err
		}
		if err := QueueAlerts(ctx, tx, tenant, p.CustomerID); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "price.set", p.MeterID.String(), nil, auditedPrice(p))
	})
	return p, err
}

var priceLimit = pg.Limit{
	Count: `select count(*) from meter_prices where tenant_id = @tenant and customer_id is null and withdrawn_at is null`,
	Most:  metering.MaxPrices, Noun: "versions of prices in force or scheduled", Fix: "withdraw a scheduled one first",
}

var customerPriceLimit = pg.Limit{
	Count: `select count(*) from meter_prices where tenant_id = @tenant and customer_id = @of and withdrawn_at is null`,
	Owner: "customer", Most: metering.MaxPricesOfCustomer, Noun: "versions of prices in force or scheduled", Fix: "withdraw a scheduled one first",
}

// The sizes of terms are bounded because billing reads all prices of a tenant at once.
var (
	priceBytesLimit = pg.Limit{
		Count: priceBytes + `and p.customer_id is null`,
		Most:  metering.MaxPriceBytes, Noun: "bytes of prices, including earlier versions", Fix: "withdraw a scheduled one first",
	}
	customerPriceBytesLimit = pg.Limit{
		Count: priceBytes + `and p.customer_id = @of`,
		Owner: "customer", Most: metering.MaxPriceBytesOfCustomer, Noun: "bytes of prices, including earlier versions", Fix: "withdraw a scheduled one first, or end the own price and set it in a plan",
	}
)

const priceBytes = `
	select coalesce(sum(octet_length(t.terms::text)), 0)
	from meter_prices p
	join price_terms t on t.tenant_id = p.tenant_id and t.hash = p.terms
	where p.tenant_id = @tenant
	  and p.withdrawn_at is null `

// storePrice stores a version and withdraws the version that it replaces.
func storePrice(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, actor metering.Actor, p *billing.Price) error {
	args := pgx.NamedArgs{
		"tenant": tenant, "meter": p.MeterID, "plan": int64(p.PlanID), "customer": int64(p.CustomerID), "effective_from": p.EffectiveFrom, "actor": actor,
		"hash": nil,
	}
	if _, err := tx.Exec(ctx, `
		update meter_prices p
		set withdrawn_at = now()
		where tenant_id = @tenant
		  and meter_id = @meter
		  and `+ownerCondition+`
		  and effective_from = @effective_from
		  and withdrawn_at is null`, args); err != nil {
		return err
	}
	versions, bytes := priceLimit, priceBytesLimit
	if of := int64(p.CustomerID); of != 0 {
		versions, bytes = customerPriceLimit.OfOwner(of), customerPriceBytesLimit.OfOwner(of)
	}
	if err := pg.RequireRoom(ctx, tx, tenant, versions); err != nil {
		return err
	}
	if !p.Inherits {
		if err := pg.RequireRoom(ctx, tx, tenant, bytes); err != nil {
			return err
		}
		hash := p.Hash()
		args["hash"], args["schema"], args["terms"] = hash[:], billing.TermsSchema, p.JSON()
		if _, err := tx.Exec(ctx, insertTerms, args); err != nil {
			return err
		}
	}
	return tx.QueryRow(ctx, `
		insert into meter_prices (tenant_id, meter_id, plan_id, customer_id, version, terms, effective_from, created_by)
		select @tenant, @meter, nullif(@plan::bigint, 0), nullif(@customer::bigint, 0), coalesce(max(version), 0) + 1, @hash, @effective_from, @actor
		from meter_prices
		where tenant_id = @tenant
		  and meter_id = @meter
		returning version, effective_from, created_at`, args).Scan(&p.Version, &p.EffectiveFrom, &p.CreatedAt)
}

// Withdraw withdraws a version that has not taken effect. After it has locked the catalog, it takes the current time
// from the function now. It returns CodeNotFound if there is no such version. It returns CodeConflict if the version
// has taken effect, because it charges billing periods that have begun.
func (s Prices) Withdraw(ctx context.Context, tenant metering.TenantID, actor metering.Actor, p billing.Price, now func() time.Time) error {
	return pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if _, err := RaiseRevision(ctx, tx, tenant); err != nil {
			return err
		}
		at := now()
		var scheduled bool
		err := tx.QueryRow(ctx, `
			select effective_from > @at
			from meter_prices p
			where tenant_id = @tenant
			  and meter_id = @meter
			  and `+ownerCondition+`
			  and version = @version
			  and withdrawn_at is null
			for update`, pgx.NamedArgs{
			"tenant": tenant, "meter": p.MeterID, "plan": int64(p.PlanID), "customer": int64(p.CustomerID), "version": p.Version, "at": at,
		}).Scan(&scheduled)
		if errors.Is(err, pgx.ErrNoRows) {
			return metering.Errorf(metering.CodeNotFound, "the price has no such version")
		}
		if err != nil {
			return err
		}
		if !scheduled {
			return metering.Errorf(metering.CodeConflict, "version %d has taken effect and cannot be withdrawn; set another price instead", p.Version)
		}
		_, err = tx.Exec(ctx, `update meter_prices set withdrawn_at = $4 where tenant_id = $1 and meter_id = $2 and version = $3`, tenant, p.MeterID, p.Version, at)
		if err != nil {
			return err
		}
		if err := QueueAlerts(ctx, tx, tenant, p.CustomerID); err != nil {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, actor, "price.withdraw", p.MeterID.String(), audit.Fields{"version": p.Version}, nil)
	})
}

// refuseBeginning returns CodeConflict for a price from the beginning (a zero EffectiveFrom) if the owner
// has a price of the meter already.
func refuseBeginning(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, p billing.Price) error {
	if !p.EffectiveFrom.IsZero() {
		return nil
	}
	var priced bool
	err := tx.QueryRow(ctx, `
		select exists (
		  select
		  from meter_prices p
		  where tenant_id = @tenant
		    and meter_id = @meter
		    and `+ownerCondition+`
		    and withdrawn_at is null)`, pgx.NamedArgs{
		"tenant": tenant, "meter": p.MeterID, "plan": int64(p.PlanID), "customer": int64(p.CustomerID),
	}).Scan(&priced)
	if err != nil || !priced {
		return err
	}
	return metering.Errorf(metering.CodeConflict, "another request set the first price of the meter at the same time; repeat the request")
}

// Replaced returns the price that a new version p follows or replaces. It is the price that is in force for p's owner at
// p.EffectiveFrom, or at now if p begins earlier. If there is none, it is the first one that is in force later. Without
// either, Replaced returns a zero price.
func (s Prices) Replaced(ctx context.Context, tenant metering.TenantID, p billing.Price, now time.Time) (replaced billing.Price, err error) {
	versions, err := collectPrices(ctx, s.pool, `and p.meter_id = $2 and coalesce(p.customer_id, 0) in (0, $3) order by p.version`, tenant, p.MeterID, int64(p.CustomerID))
	if err != nil {
		return replaced, err
	}
	assigned, err := Plans(s).Assignments(ctx, tenant, p.CustomerID)
	if err != nil {
		return replaced, err
	}
	of := billing.Customer{Plans: []billing.Assignment{{PlanID: p.PlanID}}}
	for _, a := range assigned {
		of.Plans = append(of.Plans, a.Assignment)
	}
	isOwn := func(v billing.Price) bool { return v.CustomerID != 0 }
	of.Prices = slices.DeleteFunc(slices.Clone(versions), func(v billing.Price) bool { return !isOwn(v) })
	replaced, _ = of.FirstPriceSince(p.MeterID, slices.DeleteFunc(versions, isOwn), slices.MaxFunc([]time.Time{p.EffectiveFrom, now}, time.Time.Compare))
	return replaced, nil
}

// Versions returns the owner's prices of a meter, oldest first.
func (s Prices) Versions(ctx context.Context, tenant metering.TenantID, meter metering.MeterID, of PriceOwner) ([]billing.Price, error) {
	return collectPrices(ctx, s.pool, `and p.meter_id = $2 and coalesce(p.plan_id, 0) = $3 and coalesce(p.customer_id, 0) = $4 order by p.version`,
		tenant, meter, int64(of.Plan), int64(of.Customer))
}

// MeterPrices are one owner's prices of a meter, oldest first.
type MeterPrices struct {
	MeterID   metering.MeterID
	MeterSlug string
	Versions  []billing.Price
}

// List returns the next meters for which the owner has prices, with these prices, in order of meter ID. It begins after
// the given ID, and returns at most limit meters.
func (s Prices) List(ctx context.Context, tenant metering.TenantID, of PriceOwner, after metering.MeterID, limit int) (page pg.Page[MeterPrices], err error) {
	slugs := make(map[metering.MeterID]string)
	var meter metering.MeterID
	var slug string
	rows, err := s.pool.Query(ctx, `
		select m.id, m.slug
		from meters m
		where m.tenant_id = $1
		  and m.id > $3
		  and exists (
		    select
		    from meter_prices p
		    where p.tenant_id = m.tenant_id
		      and p.meter_id = m.id
		      and coalesce(p.plan_id, 0) = $2
		      and coalesce(p.customer_id, 0) = $5
		      and p.withdrawn_at is null)
		order by m.id
		limit $4`, tenant, int64(of.Plan), after, limit+1, int64(of.Customer))
	if err != nil {
		return page, pg.Coded(err)
	}
	if _, err := pgx.ForEachRow(rows, []any{&meter, &slug}, func() error { slugs[meter] = slug; return nil }); err != nil {
		return page, pg.Coded(err)
	}
	prices, err := collectPrices(ctx, s.pool, `and p.meter_id = any($2) and coalesce(p.plan_id, 0) = $3 and coalesce(p.customer_id, 0) = $4 order by p.meter_id, p.version`,
		tenant, slices.Collect(maps.Keys(slugs)), int64(of.Plan), int64(of.Customer))
	var list []MeterPrices
	for _, p := range prices {
		if len(list) == 0 || list[len(list)-1].MeterID != p.MeterID {
			list = append(list, MeterPrices{MeterID: p.MeterID, MeterSlug: slugs[p.MeterID]})
		}
		of := &list[len(list)-1]
		of.Versions = append(of.Versions, p)
	}
	return pg.NewPage(ctx, list, limit, MeterPrices.bytes), err
}

func (p MeterPrices) bytes() (n int) {
	for _, version := range p.Versions {
		n += versionBytes + len(version.JSON())
	}
	return n
}

// versionBytes is the approximate size of a price version in memory without its terms, for the bound of a page.
const versionBytes = 512

// AllPrices returns the prices of meters and plans, by meter. Prices of customers are not included.
func AllPrices(ctx context.Context, q pg.Querier, tenant metering.TenantID) (map[metering.MeterID][]billing.Price, error) {
	prices, err := collectPrices(ctx, q, OfCatalog, tenant)
	byMeter := make(map[metering.MeterID][]billing.Price)
	for _, p := range prices {
		byMeter[p.MeterID] = append(byMeter[p.MeterID], p)
	}
	return byMeter, err
}

// PriceVersions returns the versions of AllPrices without terms, which billing.PriceAt does not need. The terms of a
// tenant can have several MiB.
func PriceVersions(ctx context.Context, q pg.Querier, tenant metering.TenantID) (map[metering.MeterID][]billing.Price, error) {
	rows, err := q.Query(ctx, `
		select meter_id, coalesce(plan_id, 0), version, effective_from
		from meter_prices
		where tenant_id = $1
		  and customer_id is null
		  and withdrawn_at is null`, tenant)
	if err != nil {
		return nil, pg.Coded(err)
	}
	byMeter := make(map[metering.MeterID][]billing.Price)
	var p billing.Price
	_, err = pgx.ForEachRow(rows, []any{&p.MeterID, &p.PlanID, &p.Version, &p.EffectiveFrom}, func() error {
		byMeter[p.MeterID] = append(byMeter[p.MeterID], p)
		return nil
	})
	return byMeter, pg.Coded(err)
}

// auditedPrice returns the fields of an audit entry about the price. Its terms are exactly as stored.
func auditedPrice(p billing.Price) audit.Fields {
	fields := audit.Fields{"version": p.Version, "effective_from": nil, "terms": nil} // null: from the beginning, inherited
	if !p.Inherits {
		fields["terms"] = json.RawMessage(p.JSON())
	}
	if !p.EffectiveFrom.IsZero() {
		fields["effective_from"] = p.EffectiveFrom.UTC()
	}
	if p.PlanID != 0 {
		fields["plan_id"] = p.PlanID.String()
	}
	if p.CustomerID != 0 {
		fields["customer_id"] = p.CustomerID.String()
	}
	return fields
}

// needsAmounts reports whether only a provider that bills amounts can charge the terms. A quantity has no
// number of events, which a fixed fee needs, and no dimension values.
func needsAmounts(t billing.Terms) bool { return !t.FixedFee.IsZero() || t.Dimensions != nil }

// RefuseBesideQuantities returns CodeInvalid for terms that need amounts if the tenant's active provider
// bills quantities. Set returns the same error.
func (s Prices) RefuseBesideQuantities(ctx context.Context, tenant metering.TenantID, t billing.Terms) error {
	return pg.Coded(refuseBesideQuantities(ctx, s.pool, tenant, t))
}

// lockBesideQuantities returns the same error as RefuseBesideQuantities. If the terms need amounts, it
// locks the tenant, so that no provider is saved before the transaction ends. The caller must not have
// locked a meter, because alerts and quotas lock the tenant before the meter.
func lockBesideQuantities(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, t billing.Terms) error {
	if !needsAmounts(t) {
		return nil
	}
	if err := pg.LockAccess(ctx, tx, tenant); err != nil {
		return err
	}
	return refuseBesideQuantities(ctx, tx, tenant, t)
}

func refuseBesideQuantities(ctx context.Context, q pg.Querier, tenant metering.TenantID, t billing.Terms) error {
	if !needsAmounts(t) {
		return nil
	}
	var active metering.Provider
	err := q.QueryRow(ctx, `select statements, bills from billing_connections where tenant_id = $1 and retired_at is null`, tenant).
		Scan(&active.Statements, &active.Bills)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil || !active.BillsQuantities() {
		return err
	}
	if t.Dimensions != nil {
		return metering.Invalid("body.dimensions", "must be absent while the billing provider bills quantities, which have no dimension values; set bills of the provider to amounts first")
	}
	return metering.Invalid("body.fixed_fee", "must be 0 while the billing provider bills quantities, which have no number of events; set bills of the provider to amounts first")
}
