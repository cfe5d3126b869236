package db

import (
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// customerFacts are the facts that a customer has one row of: whose billing it
// is, where it is billed, and what the customer is there.
type customerFacts struct {
	billing.Facts
	kind       metering.ProviderKind
	lastNumber int64               // of the customer's reports
	paused     bool                // by an operator: nothing is reported
	streams    int                 // how many the customer has
	stored     []storedDestination // the side's
	others     []storedSide        // the side's too
	terms      keptTerms           // of their prices
}

func (r *factReader) customerAndSide() error {
	rows, err := r.q.Query(r.ctx, selectCustomerFacts+`and c.id = @customer`, pgx.NamedArgs{"tenant": r.tenant, "customer": r.customer})
	if err != nil {
		return err
	}
	one, err := pgx.CollectExactlyOneRow(rows, scanCustomerFacts)
	if errors.Is(err, pgx.ErrNoRows) {
		return metering.Errorf(metering.CodeNotFound, "there is no such customer")
	}
	if err != nil {
		return err
	}
	one.Now = r.facts.Now
	if err := one.price(r.prices, r.readPrice); err != nil {
		return err
	}
	r.facts, r.kind, r.lastNumber, r.paused, r.streams = one.Facts, one.kind, one.lastNumber, one.paused, one.streams
	r.base = r.facts
	return nil
}

// selectCustomerFacts reads customers c. Early events are looked for only until
// the first period is decided, and only as far back as one could have come in
// time: the condition stands where the events are read, so that else none are.
var selectCustomerFacts = `
	select c.id, c.external_id, c.created_at, c.billing_starts_at, t.timezone, t.currency, t.grace, t.late_policy,
	  coalesce(k.kind, ''), coalesce(k.statements, false), coalesce(k.invoices, false), k.id, k.mapping,
	  coalesce(k.bills, ''), coalesce(k.bills_before, ''), coalesce(k.bills_since, timestamptz '0001-01-01'), k.invoice_text, l.provider_customer, coalesce(l.subscription, ''), l.period_start, l.period_end,
	  coalesce(l.trial, false), coalesce(l.ended, false), coalesce(l.currency, ''), l.destinations, l.charges, l.others, ` + namedTerms("l.tenant_id", hashesInDestinations) + `,
	  array(select x.id from billing_connections x where x.tenant_id = c.tenant_id and x.livemode is false), a.products, a.since,
	  c.head_open_until, early.at, early.ingested_at,
	  ` + lastNumber("c.tenant_id", "c.id") + `, ` + isPaused("c.tenant_id", "c.id") + `,
	  array(select epoch from ledger_epochs order by epoch), ` + isUnread + `, c.streams, ` + feedsOfCustomer + `, ` + followedOfCustomer + `
	from customers c
	join tenants t on t.id = c.tenant_id
	left join billing_connections k on k.tenant_id = c.tenant_id and k.retired_at is null
	left join billing_links l on l.tenant_id = c.tenant_id and l.customer_id = c.id
	  and l.connection_id = k.id and l.provider_customer = coalesce(c.billing_provider_id, '')
	left join lateral (
	  select array_agg(coalesce(a.product_id, 0) order by a.effective_from) as products, array_agg(a.effective_from order by a.effective_from) as since
	  from customer_products a
	  where a.tenant_id = c.tenant_id
	    and a.customer_id = c.id) a on true
	left join lateral (
	  select array_agg(e.at) as at, array_agg(e.ingested_at) as ingested_at
	  from (
	    select min(e.ts) as at, min(e.ingested_at) as ingested_at
	    from events e
	    where e.tenant_id = c.tenant_id
	      and e.customer_id = c.id
	      and e.ts < c.created_at
	      and e.ts >= c.created_at - t.grace - interval '32 days'
	      and (c.head_open_until is not null or not exists (select from billing_periods p where p.tenant_id = c.tenant_id and p.customer_id = c.id))
	    group by date_trunc('month', e.ts at time zone t.timezone)) e) early on true
	where c.tenant_id = @tenant `

// price gives what the customer is at the provider its prices.
func (f *customerFacts) price(prices providerPrices, read ReadPrice) (err error) {
	if f.Side != nil {
		if f.Side.Destinations, err = prices.destinations(f.stored, f.terms, read); err != nil {
			return err
		}
		f.Side.Others, err = prices.sides(f.others, f.Side.Customer, f.terms, read)
	}
	return err
}

func scanCustomerFacts(row pgx.CollectableRow) (f customerFacts, err error) {
	side := billing.Side{}
	var (
		zone       string
		statements bool
		invoices   bool
		connection *metering.ConnectionID
		atProvider *string
		mapping    map[string]string
		at         billing.Connection
		text       *metering.InvoiceText
		start, end *time.Time
		products   []metering.ProductID
		since      []time.Time
		unread     *bool // nil: nobody bills the tenant's usage

		earlyAt, earlyIngested []time.Time

		feeds    []storedFeed
		followed []storedFollowed
	)
	err = row.Scan(&f.Customer.ID, &f.Customer.ExternalID, &f.Customer.CreatedAt, &f.Customer.BillingStartsAt,
		&zone, &f.Settings.Currency, &f.Settings.Grace, &f.Settings.LatePolicy,
		&f.kind, &statements, &invoices, &connection, &mapping, &at.Bills, &at.BillsBefore, &at.BillsSince, &text, &atProvider, &side.Subscription, &start, &end,
		&side.Trial, &side.Ended, &side.Currency, &f.stored, &side.Charges, &f.others, &f.terms, &f.InTest, &products, &since,
		&f.Customer.HeadOpenUntil, &earlyAt, &earlyIngested, &f.lastNumber, &f.paused, &f.Epochs, &unread, &f.streams, &feeds, &followed)
	if err != nil {
		return f, err
	}
	if n := len(f.Epochs); n > 0 {
		f.Epoch = f.Epochs[n-1]
	}
	f.Unread = unread != nil && *unread
	f.Settings.Timezone = metering.Location(zone)
	for i := range products {
		f.Customer.Products = append(f.Customer.Products, billing.Assignment{ProductID: products[i], EffectiveFrom: since[i]})
	}
	f.Feeds = feedsOf(feeds)
	for _, one := range followed {
		f.Followed = append(f.Followed, billing.Followed(one))
	}
	for i := range earlyAt {
		f.Customer.EarlyEvents = append(f.Customer.EarlyEvents, billing.EarlyEvents{At: earlyAt[i], IngestedAt: earlyIngested[i]})
	}
	if connection != nil {
		at.ID, at.Statements, at.Invoices, at.Mapping, at.Text = *connection, statements, invoices, mapping, *text
		f.Connection = &at
	}
	if atProvider != nil {
		side.Customer = *atProvider
		if side.Subscription != "" {
			side.Period = metering.Range{Start: *start, End: *end}
		}
		f.Side = &side
	}
	return f, nil
}
