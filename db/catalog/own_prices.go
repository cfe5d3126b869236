package catalog

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// OwnPricesOfCustomer selects the own prices of a customer c. IsOwnPriced reports whether any customer of
// @tenant has own prices. Both are SQL.
const (
	OwnPricesOfCustomer = `(
	    select jsonb_agg(jsonb_build_object('meter', m.meter_id, 'version', m.version, 'terms', t.terms, 'from', m.effective_from, 'created', m.created_at)
	      order by m.meter_id, m.version)
	    from meter_prices m
	    left join price_terms t on t.tenant_id = m.tenant_id and t.hash = m.terms
	    where m.tenant_id = c.tenant_id
	      and m.customer_id = c.id
	      and m.withdrawn_at is null)`
	IsOwnPriced = `exists (
	    select
	    from meter_prices m
	    where m.tenant_id = @tenant
	      and m.customer_id is not null
	      and m.withdrawn_at is null)`
)

// StoredOwnPrice is an element of the JSON list that OwnPricesOfCustomer selects: a version of a customer's own price.
type StoredOwnPrice struct {
	Meter   metering.MeterID `json:"meter"`
	Version int              `json:"version"`
	Terms   *billing.Terms   `json:"terms"` // nil: the version ends the customer's own price
	From    time.Time        `json:"from"`
	Created time.Time        `json:"created"`
}

// OwnPricesOf returns the stored own prices of the customer as prices.
func OwnPricesOf(customer metering.CustomerID, stored []StoredOwnPrice) (own []billing.Price) {
	for _, s := range stored {
		p := billing.Price{
			MeterID: s.Meter, CustomerID: customer, Version: s.Version, Inherits: s.Terms == nil, EffectiveFrom: s.From, CreatedAt: s.Created,
		}
		if s.Terms != nil {
			p.Terms = *s.Terms
		}
		own = append(own, p)
	}
	return own
}

// OwnVersions returns the SQL of billing.OwnVersions of a customer at the start of a period.
func OwnVersions(tenant, customer, start string) string {
	return `coalesce((
		select string_agg(' ' || own.meter_id || ':' || own.version, '' order by own.meter_id)
		from (
		  select distinct on (m.meter_id) m.meter_id, m.version
		  from meter_prices m
		  where m.tenant_id = ` + tenant + `
		    and m.customer_id = ` + customer + `
		    and m.withdrawn_at is null
		    and m.effective_from <= ` + start + `
		  order by m.meter_id, m.effective_from desc, m.version desc) own), '')`
}

// IsOwnPricedAt returns the SQL condition that an own price of a customer for @meter is in force at an instant.
func IsOwnPricedAt(customer, at string) string {
	return `coalesce((
		select m.terms is not null
		from meter_prices m
		where m.tenant_id = @tenant
		  and m.meter_id = @meter
		  and m.customer_id = ` + customer + `
		  and m.withdrawn_at is null
		  and m.effective_from <= ` + at + `
		order by m.effective_from desc, m.version desc
		limit 1), false)`
}

// SourceOfPrice is the SQL of the billing.PriceSource of a total t of a closed period.
const SourceOfPrice = `coalesce((
	select case when v.customer_id is not null then 'customer' when v.plan_id is not null then 'plan' else 'meter' end
	from meter_prices v
	where v.tenant_id = t.tenant_id
	  and v.meter_id = t.meter_id
	  and v.version = t.price_version), '')`

// refuseEnd returns CodeConflict if p ends a customer's own price, but the customer has no own price to end.
func refuseEnd(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, p billing.Price) error {
	if !p.Inherits {
		return nil
	}
	var priced bool
	err := tx.QueryRow(ctx, `
		select exists (
		  select
		  from meter_prices
		  where tenant_id = $1
		    and customer_id = $2
		    and meter_id = $3
		    and terms is not null
		    and effective_from <= $4
		    and withdrawn_at is null)`, tenant, p.CustomerID, p.MeterID, p.EffectiveFrom).Scan(&priced)
	if err != nil || priced {
		return err
	}
	return metering.Errorf(metering.CodeConflict, "the customer has no own price of the meter that applies before effective_from")
}
