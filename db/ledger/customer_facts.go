package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// customerFacts holds the facts that one statement reads as one row per customer: its settings, its billing
// connection, and its state at the provider.
type customerFacts struct {
	billing.Facts
	kind       metering.ProviderKind
	lastNumber int64               // number of the customer's last report
	paused     bool                // reporting is paused
	streams    int                 // number of the customer's billing schedules
	isHeadOpen bool                // an early event may still determine the start of the first period
	stored     []storedDestination // stored form of Side.Destinations
	others     []storedSide        // stored form of Side.Others
	terms      keptTerms           // terms of the prices in stored and others
}

// newFactReaders returns a reader of each customer's first billing schedule, ordered by customer ID. The
// readers already hold the customerFacts of their customers. facts is selectCustomerFacts or selectScheduleFacts.
func newFactReaders(ctx context.Context, q pg.Batcher, price ReadPrice, tenant metering.TenantID, facts string, customers []int64, now time.Time) (readers []*factReader, err error) {
	rows, err := q.Query(ctx, facts+`and c.id = any(@customers) order by c.id`, pgx.NamedArgs{"tenant": tenant, "customers": customers})
	if err != nil {
		return nil, err
	}
	all, err := pgx.CollectRows(rows, scanCustomerFacts(new(connectionSettings)))
	if err != nil {
		return nil, err
	}
	if err := addEarlyEvents(ctx, q, tenant, all); err != nil {
		return nil, err
	}
	prices := make(providerPrices)
	for _, one := range all {
		one.Now = metering.Instant(now)
		if err := one.price(prices, price); err != nil {
			return nil, err
		}
		readers = append(readers, &factReader{
			ctx: ctx, q: q, readPrice: price, tenant: tenant, customer: one.Customer.ID, prices: prices, base: one.Facts, facts: one.Facts,
			kind: one.kind, lastNumber: one.lastNumber, paused: one.paused, streams: one.streams,
		})
	}
	return readers, nil
}

// selectCustomerFacts is the SQL statement that selects the columns of scanCustomerFacts for customers c. Callers
// append conditions on c. selectScheduleFacts is the same statement without own prices, which do not determine
// the start and end of any billing period.
var (
	selectCustomerFacts = customerFactsWith(catalog.OwnPricesOfCustomer)
	selectScheduleFacts = customerFactsWith(`null::jsonb`)
)

func customerFactsWith(ownPrices string) string {
	return `
	select c.id, c.external_id, c.created_at, c.billing_starts_at, t.timezone, t.currency, t.grace, t.late_policy,
	  coalesce(k.kind, ''), coalesce(k.statements, false), coalesce(k.invoices, false), k.id, k.mapping,
	  coalesce(k.bills, ''), coalesce(k.bills_before, ''), coalesce(k.bills_since, timestamptz '0001-01-01'), k.invoice_text, l.provider_customer, coalesce(l.subscription, ''), l.period_start, l.period_end,
	  coalesce(l.trial, false), coalesce(l.ended, false), coalesce(l.currency, ''), l.destinations, l.charges, l.others, ` + namedTerms("l.tenant_id", hashesInDestinations) + `,
	  array(select x.id from billing_connections x where x.tenant_id = c.tenant_id and x.livemode is false), a.plans, a.since,
	  c.head_open_until, c.head_open_until is not null or not exists (select from billing_periods p where p.tenant_id = c.tenant_id and p.customer_id = c.id),
	  ` + lastNumber("c.tenant_id", "c.id") + `, ` + isPaused("c.tenant_id", "c.id") + `,
	  array(select epoch from ledger_epochs order by epoch), ` + isUnread + `, c.streams, ` + usage.FeedsOfCustomer + `, ` + followedOfCustomer + `,
	  ` + ownPrices + `, ` + catalog.IsOwnPriced + `
	from customers c
	join tenants t on t.id = c.tenant_id
	left join billing_connections k on k.tenant_id = c.tenant_id and k.retired_at is null
	left join billing_links l on l.tenant_id = c.tenant_id and l.customer_id = c.id
	  and l.connection_id = k.id and l.provider_customer = coalesce(c.billing_provider_id, '')
	left join lateral (
	  select array_agg(coalesce(a.plan_id, 0) order by a.effective_from) as plans, array_agg(a.effective_from order by a.effective_from) as since
	  from customer_plans a
	  where a.tenant_id = c.tenant_id
	    and a.customer_id = c.id) a on true
	where c.tenant_id = @tenant `
}

// price decodes the provider's prices and adds them to the destinations in f.Side.
func (f *customerFacts) price(prices providerPrices, read ReadPrice) (err error) {
	if f.Side != nil {
		if f.Side.Destinations, err = prices.destinations(f.stored, f.terms, read); err != nil {
			return err
		}
		f.Side.Others, err = prices.sides(f.others, f.Side.Customer, f.terms, read)
	}
	return err
}

// connectionSettings holds the decoded settings of a connection. The customers of a batch share them, because a
// tenant's mapping can be large.
type connectionSettings struct {
	mappingText, invoiceText []byte // as read, of the values below
	mapping                  map[string]string
	text                     *metering.InvoiceText
}

// decode decodes the settings in a row, unless an earlier row had the same ones. Both texts are null if the tenant
// has no connection.
func (s *connectionSettings) decode(mapping, text []byte) error {
	if bytes.Equal(mapping, s.mappingText) && bytes.Equal(text, s.invoiceText) {
		return nil
	}
	read := connectionSettings{mappingText: mapping, invoiceText: text}
	if err := errors.Join(decodeSetting(mapping, &read.mapping), decodeSetting(text, &read.text)); err != nil {
		return err
	}
	*s = read
	return nil
}

func decodeSetting(text []byte, into any) error {
	if text == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// scanCustomerFacts returns a function that scans a row of selectCustomerFacts.
func scanCustomerFacts(settings *connectionSettings) pgx.RowToFunc[*customerFacts] {
	return func(row pgx.CollectableRow) (*customerFacts, error) { return scanCustomer(row, settings) }
}

func scanCustomer(row pgx.CollectableRow, settings *connectionSettings) (f *customerFacts, err error) {
	f = new(customerFacts)
	side := billing.Side{}
	var (
		zone       string
		statements bool
		invoices   bool
		connection *metering.ConnectionID
		atProvider *string
		mapping    []byte
		at         billing.Connection
		text       []byte
		start, end *time.Time
		plans      []metering.PlanID
		since      []time.Time
		unread     *bool // can be nil if the tenant has no billing provider

		feeds    []usage.StoredFeed
		followed []storedFollowed
		own      []catalog.StoredOwnPrice
	)
	err = row.Scan(&f.Customer.ID, &f.Customer.ExternalID, &f.Customer.CreatedAt, &f.Customer.BillingStartsAt,
		&zone, &f.Settings.Currency, &f.Settings.Grace, &f.Settings.LatePolicy,
		&f.kind, &statements, &invoices, &connection, &mapping, &at.Bills, &at.BillsBefore, &at.BillsSince, &text, &atProvider, &side.Subscription, &start, &end,
		&side.Trial, &side.Ended, &side.Currency, &f.stored, &side.Charges, &f.others, &f.terms, &f.InTest, &plans, &since,
		&f.Customer.HeadOpenUntil, &f.isHeadOpen, &f.lastNumber, &f.paused, &f.Epochs, &unread, &f.streams, &feeds, &followed, &own, &f.OwnPriced)
	if err != nil {
		return f, err
	}
	if err := settings.decode(mapping, text); err != nil {
		return f, err
	}
	if n := len(f.Epochs); n > 0 {
		f.Epoch = f.Epochs[n-1]
	}
	f.Unread = unread != nil && *unread
	if f.Settings.Timezone, err = billingZone(zone); err != nil {
		return f, err
	}
	for i := range plans {
		f.Customer.Plans = append(f.Customer.Plans, billing.Assignment{PlanID: plans[i], EffectiveFrom: since[i]})
	}
	f.Customer.Prices = catalog.OwnPricesOf(f.Customer.ID, own)
	f.Feeds = usage.FeedsOf(feeds)
	for _, one := range followed {
		f.Followed = append(f.Followed, billing.Followed(one))
	}
	if connection != nil {
		at.ID, at.Statements, at.Invoices, at.Mapping, at.Text = *connection, statements, invoices, settings.mapping, *settings.text
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

// billingZone returns the time zone of a tenant's billing periods. It returns CodeConflict if the zone is
// unknown, because billing in another zone would move charges between months.
func billingZone(name string) (*time.Location, error) {
	zone, err := metering.LoadLocation(name)
	if err != nil {
		return nil, metering.Errorf(metering.CodeConflict, "The tenant's timezone is not an IANA time zone name. Change it with PATCH /v1/tenant.").Because(err)
	}
	return zone, nil
}

// EarliestUsage is the SQL of the earliest timestamp at which an event can determine the start of a customer's
// first period. c is the customer, and t is its tenant. 32 days are longer than a calendar month in every time
// zone.
const EarliestUsage = `(c.created_at - t.grace - interval '32 days')`

// addEarlyEvents reads the early events of customers with an undecided first period, grouped by month in the
// tenant's time zone. All customers belong to one tenant. Go computes the months, because the time zone data of
// PostgreSQL may differ.
func addEarlyEvents(ctx context.Context, q pg.Querier, tenant metering.TenantID, all []*customerFacts) error {
	undecided := make(map[metering.CustomerID]*customerFacts)
	var created []time.Time
	for _, f := range all {
		if f.isHeadOpen {
			undecided[f.Customer.ID], created = f, append(created, f.Customer.CreatedAt)
		}
	}
	if len(undecided) == 0 {
		return nil
	}
	settings := all[0].Settings
	earliest := slices.MinFunc(created, time.Time.Compare).Add(-settings.Grace).AddDate(0, 0, -32)
	var months []time.Time
	for _, month := range billing.ExtendPeriods(billing.CalendarPeriod(earliest, settings.Timezone), slices.MaxFunc(created, time.Time.Compare), settings.Timezone) {
		months = append(months, month.Start)
	}
	rows, err := q.Query(ctx, `
		select c.id, early.at, early.ingested_at
		from customers c
		join tenants t on t.id = c.tenant_id
		cross join lateral (
		  select min(e.ts) as at, min(e.ingested_at) as ingested_at
		  from events e
		  where e.tenant_id = c.tenant_id
		    and e.customer_id = c.id
		    and e.ts < c.created_at
		    and e.ts >= `+EarliestUsage+`
		  group by width_bucket(e.ts, $3::timestamptz[])) early
		where c.tenant_id = $1
		  and c.id = any($2)`, tenant, slices.Collect(maps.Keys(undecided)), months)
	if err != nil {
		return err
	}
	var id metering.CustomerID
	var early billing.EarlyEvents
	_, err = pgx.ForEachRow(rows, []any{&id, &early.At, &early.IngestedAt}, func() error {
		customer := &undecided[id].Customer
		customer.EarlyEvents = append(customer.EarlyEvents, early)
		return nil
	})
	return err
}
