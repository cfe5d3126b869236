package db

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// Erasures take what is personal of a customer out of the database, everywhere, and
// leave every number as it is. Each step may be repeated.
type Erasures struct {
	pool *pool
	read ReadPrice
}

// ErasingCustomer is one whose erasure has begun and is not done.
type ErasingCustomer struct {
	Tenant metering.TenantID
	ID     metering.CustomerID
}

// erasedValue stands where a property's value was: another one for another value.
// What stands for one already stays.
func (k auditKey) erasedValue(tenant metering.TenantID, property string, value json.RawMessage) json.RawMessage {
	if string(value) == "null" || isErasedValue(value) {
		return value
	}
	text, err := json.Marshal(erasedPrefix + hex.EncodeToString(k.mac([]byte("erased value"), []byte(tenant.String()), []byte(property), value)[:erasedBytes]))
	if err != nil {
		panic(err) // hexadecimals are text
	}
	return text
}

const (
	erasedPrefix = "erased-"
	erasedBytes  = 16
)

func isErasedValue(value json.RawMessage) bool {
	digest, is := strings.CutPrefix(strings.Trim(string(value), `"`), erasedPrefix)
	raw, err := hex.DecodeString(digest)
	return is && err == nil && len(raw) == erasedBytes
}

func (k auditKey) erasedKey(tenant metering.TenantID, key string) []byte {
	return k.mac([]byte("erased key"), []byte(tenant.String()), []byte(key))
}

// Begin gives the customer another name, under which nothing more comes in, and has
// nothing more stated to a receiver that knows the former one. CodeNotFound where
// there is no such customer, and CodeConflict, naming it, while something of it is
// not billed or on its way.
func (s Erasures) Begin(ctx context.Context, tenant metering.TenantID, actor metering.Actor, externalID, reason string, now time.Time) (erased metering.Customer, err error) {
	c, err := (Customers{s.pool}).Get(ctx, tenant, externalID)
	if err != nil {
		return c, err
	}
	if err := s.refuseUnreported(ctx, tenant, c.ID, now); err != nil {
		return c, err
	}
	err = Ledger(s).exclusively(ctx, tenant, func(tx pgx.Tx) error {
		if err := takeTurn(ctx, tx, tenant, c.ID); err != nil {
			return err
		}
		former, err := lockKnownCustomer(ctx, tx, tenant, externalID)
		if err != nil {
			return err
		}
		if err := refuseOpenBilling(ctx, tx, tenant, former.ID); err != nil {
			return err
		}
		if erased, err = s.rename(ctx, tx, former, now); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			insert into billing_pauses (tenant_id, customer_id, began_at, began_by, reason)
			select $1, $2, $3, $4, 'the customer is erased'
			from billing_connections
			where tenant_id = $1
			  and retired_at is null
			  and statements
			on conflict (tenant_id, customer_id) where ended_at is null do nothing`, tenant, erased.ID, erased.ErasedAt, actor); err != nil {
			return err
		}
		if err := raiseErasures(ctx, tx, tenant); err != nil {
			return err
		}
		return auditDecision(ctx, tx, tenant, decision{actor, "customer.erase", erased.ID.String(), reason}, tellCustomer(former), tellCustomer(erased))
	})
	if err != nil {
		return metering.Customer{}, fmt.Errorf("begin erasure: %w", err)
	}
	return erased, nil
}

// rename puts what stands for them where the customer's names were.
func (s Erasures) rename(ctx context.Context, tx pgx.Tx, c metering.Customer, now time.Time) (erased metering.Customer, err error) {
	digest := hex.EncodeToString(s.pool.audit.mac([]byte("erased customer"), []byte(c.TenantID.String()), []byte(c.ExternalID), []byte(c.Name), c.Metadata))
	err = tx.QueryRow(ctx, `
		update customers c
		set external_id = $3, name = $3, metadata = jsonb_build_object('erased', $4::text), erased_at = $5, archived_at = coalesce(archived_at, $5)
		where c.tenant_id = $1
		  and c.id = $2
		returning `+customerColumns, c.TenantID, c.ID, metering.ErasedName(c.ID), digest, metering.Instant(now)).Scan(customerFields(&erased)...)
	return erased, customerConflict(err)
}

// raiseErasures has every process forget what it knows of the tenant's customers
// and groups. The caller holds the tenant's lock.
func raiseErasures(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	_, err := tx.Exec(ctx, `update tenants set erasures = erasures + 1 where id = $1`, tenant)
	return err
}

// refuseUnreported refuses where the provider does not have everything yet.
func (s Erasures) refuseUnreported(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) error {
	page, err := Ledger(s).OutOfSync(ctx, tenant, customer-1, 1, now)
	switch {
	case metering.CodeOf(err) == metering.CodeNoProvider:
		return nil
	case err != nil:
		return err
	case len(page.Customers) > 0 && page.Customers[0] == customer:
		return metering.Errorf(metering.CodeConflict, "the provider has not received all of the customer's usage; sync the customer first with POST /v1/billing/sync")
	}
	return nil
}

// openBilling is what of a customer's billing has to end before it is erased.
var openBilling = []unfinishedKind{
	{
		`select id::text from billing_reports where tenant_id = @tenant and customer_id = @customer and state in ('planned', 'sending', 'in_doubt') order by id`,
		"%s: these reports have no known outcome; sync the customer, or resolve the reports in state in_doubt",
	},
	{
		`select id::text from billing_syncs where tenant_id = @tenant and customer_id = @customer and status in ('requested', 'running') order by id`,
		"%s: these syncs have not finished; wait, or cancel them",
	},
	{
		`select 'per_' || p.id from billing_periods p where p.tenant_id = @tenant and p.customer_id = @customer and ` + closedIncomplete + ` and ` + hasBilled + ` order by p.id`,
		"%s: these billing periods are closed but not billed in full; wait until they are complete",
	},
	{
		`select 'hld_' || id from billing_holds where tenant_id = @tenant and customer_id = @customer and ended_at is null order by id`,
		"%s: these holds are not released; release them first",
	},
}

func refuseOpenBilling(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) error {
	return refuseUnfinished(ctx, tx, openBilling, pgx.NamedArgs{"tenant": tenant, "customer": customer})
}

// Unfinished are the erasures, of all tenants, that began before and are not done.
func (s Erasures) Unfinished(ctx context.Context, before time.Time) ([]ErasingCustomer, error) {
	rows, err := s.pool.Query(ctx, `
		select tenant_id, id
		from customers
		where erased_at < $1
		  and erasure_done_at is null
		order by erased_at`, before)
	if err != nil {
		return nil, fmt.Errorf("list erasures: %w", coded(err))
	}
	erasing, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ErasingCustomer])
	return erasing, coded(err)
}

// group is one of a customer's, of a meter version that groups.
type groupUsed struct {
	Version metering.MeterVersionID
	ID      metering.GroupID
	Key     json.RawMessage
	GroupBy []string
	Shared  bool // another customer has used it too
}

func groupsOf(ctx context.Context, q querier, tenant metering.TenantID, customer metering.CustomerID) ([]groupUsed, error) {
	rows, err := q.Query(ctx, `
		select g.meter_version_id, g.group_id, g.group_key, v.group_by, `+groupUsedByOthers+`
		from usage_groups g
		join meter_versions v on v.tenant_id = g.tenant_id and v.id = g.meter_version_id and v.group_by <> '{}'
		where g.tenant_id = $1
		  and g.group_id <> $3
		  and (g.meter_version_id, g.group_id) in (`+groupsUsed+`)
		order by 1, 2`, tenant, customer, [16]byte(metering.OtherGroup.ID))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (g groupUsed, err error) {
		return g, row.Scan(&g.Version, (*[16]byte)(&g.ID), &g.Key, &g.GroupBy, &g.Shared)
	})
}

// kept are the values of properties that stay, as they are in groups' keys.
type kept map[string]map[string]bool

func (k kept) add(key json.RawMessage) error {
	values, err := valuesOf(key)
	if err != nil {
		return err
	}
	for name, value := range values {
		if k[name] == nil {
			k[name] = make(map[string]bool)
		}
		k[name][string(value)] = true
	}
	return nil
}

// valuesOf are those of a group's key, each as only one spelling has it.
func valuesOf(key json.RawMessage) (values map[string]json.RawMessage, err error) {
	if err := json.Unmarshal(key, &values); err != nil {
		return nil, fmt.Errorf("group key: %w", err)
	}
	group, err := metering.MeterVersion{GroupBy: slices.Collect(maps.Keys(values))}.GroupOf(key)
	if err != nil {
		return nil, err
	}
	return values, json.Unmarshal(group.Key, &values)
}

// Groups replaces the keys of groups that only the customer has used, once. It returns
// CodeBackfilling while the tenant's events are being counted. From then until Finish,
// backfills of the tenant wait: they would count events before and after their erasure.
func (s Erasures) Groups(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) error {
	err := inTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := allowLongStatements(ctx, tx); err != nil {
			return err
		}
		if err := lockTenant(ctx, tx, tenant); err != nil {
			return err
		}
		erased, err := hasErasedGroups(ctx, tx, tenant, customer)
		if err != nil || erased {
			return err
		}
		if err := refuseBackfilling(ctx, tx, tenant); err != nil {
			return err
		}
		if err := foldAll(ctx, tx, tenant); err != nil {
			return err
		}
		used, err := groupsOf(ctx, tx, tenant, customer)
		if err != nil {
			return err
		}
		if err := s.replaceGroups(ctx, tx, tenant, used); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, `
			update customers
			set groups_erased_at = $3
			where tenant_id = $1
			  and id = $2`, tenant, customer, metering.Instant(now))
		if err != nil {
			return err
		}
		return raiseErasures(ctx, tx, tenant)
	})
	if err != nil {
		return fmt.Errorf("erase groups: %w", err)
	}
	return nil
}

func hasErasedGroups(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) (erased bool, err error) {
	err = tx.QueryRow(ctx, `select groups_erased_at is not null from customers where tenant_id = $1 and id = $2`, tenant, customer).Scan(&erased)
	return erased, err
}

func refuseBackfilling(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	tag, err := tx.Exec(ctx, `select from meter_versions where tenant_id = $1 and status = 'backfilling'`, tenant)
	if err == nil && tag.RowsAffected() > 0 {
		err = metering.Errorf(metering.CodeBackfilling, "a meter is backfilling: the erasure continues after the backfill")
	}
	return err
}

// refuseErasing returns CodeOverloaded while the events of one of the tenant's customers are
// being erased. The caller counts a meter version that was published after Groups.
func refuseErasing(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	var customer metering.CustomerID
	err := tx.QueryRow(ctx, `
		select coalesce(min(id), 0)
		from customers
		where tenant_id = $1
		  and erased_at is not null
		  and erasure_done_at is null
		  and groups_erased_at is not null`, tenant).Scan(&customer)
	if err == nil && customer != 0 {
		err = metering.Errorf(metering.CodeOverloaded, "%s is being erased: the backfill continues after the erasure", customer)
	}
	return err
}

func (s Erasures) replaceGroups(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, used []groupUsed) error {
	stay := make(kept)
	for _, g := range used {
		if g.Shared {
			if err := stay.add(g.Key); err != nil {
				return err
			}
		}
	}
	for _, g := range used {
		if g.Shared {
			continue
		}
		next, err := s.replaced(tenant, g, stay)
		if err != nil {
			return err
		}
		if next.ID == g.ID {
			continue
		}
		args := pgx.NamedArgs{"tenant": tenant, "version": g.Version, "from": [16]byte(g.ID), "next": [16]byte(next.ID), "key": string(next.Key)}
		for _, statement := range []string{
			`insert into usage_groups (tenant_id, meter_version_id, group_id, group_key) values (@tenant, @version, @next, @key::jsonb) on conflict do nothing`,
			regroupHours, regroupMonths,
			`delete from usage_groups where tenant_id = @tenant and meter_version_id = @version and group_id = @from`,
		} {
			if _, err := tx.Exec(ctx, statement, args); err != nil {
				return err
			}
		}
	}
	return nil
}

// replaced is the group that stands where one was.
func (s Erasures) replaced(tenant metering.TenantID, g groupUsed, stay kept) (metering.Group, error) {
	values, err := valuesOf(g.Key)
	if err != nil {
		return metering.Group{}, err
	}
	for name, value := range values {
		if !stay[name][string(value)] {
			values[name] = s.pool.audit.erasedValue(tenant, name, value)
		}
	}
	key, err := json.Marshal(values)
	if err != nil {
		return metering.Group{}, err
	}
	return metering.MeterVersion{GroupBy: g.GroupBy}.GroupOf(key)
}

// EventsAfter is how far the erasure of a customer's events has come.
type EventsAfter struct {
	At   time.Time `json:"at"`
	ID   uuid.UUID `json:"id"`
	Done bool      `json:"done"`
}

// Events erases up to limit of the customer's events after one, and returns the
// last of them. The customer's groups have been replaced before.
func (s Erasures) Events(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, after EventsAfter, limit int) (last EventsAfter, err error) {
	err = inTx(ctx, s.pool, func(tx pgx.Tx) error {
		// No definition is published between its look-up here and the update of the events.
		if _, err := tx.Exec(ctx, `select pg_advisory_xact_lock_shared(`+tenantLock+`)`, tenant); err != nil {
			return err
		}
		if err := decompressOwn(ctx, tx); err != nil {
			return err
		}
		definitions, err := selectingDefinitions(ctx, tx, tenant)
		if err != nil {
			return err
		}
		used, err := groupsOf(ctx, tx, tenant, customer)
		if err != nil {
			return err
		}
		stay := make(kept)
		for _, g := range used {
			if err := stay.add(g.Key); err != nil {
				return err
			}
		}
		batch, err := s.readEvents(ctx, tx, tenant, customer, after, limit)
		if err != nil {
			return err
		}
		if last = after; len(batch.ids) > 0 {
			last = EventsAfter{At: batch.instants[len(batch.ids)-1], ID: batch.ids[len(batch.ids)-1]}
		}
		last.Done = len(batch.ids) < limit
		if err := batch.replace(s.pool.audit, tenant, stay, definitions); err != nil {
			return err
		}
		return batch.write(ctx, tx, tenant, customer)
	})
	if err != nil {
		return EventsAfter{}, fmt.Errorf("erase events: %w", err)
	}
	return last, nil
}

// selectingDefinitions returns the definitions in use by event type, of the meters with filters or
// a value property.
func selectingDefinitions(ctx context.Context, q querier, tenant metering.TenantID) (map[string][]metering.MeterVersion, error) {
	rows, err := q.Query(ctx, `select `+meterVersionColumns+` from meter_versions g where g.tenant_id = $1 and g.status <> 'retired'`, tenant)
	if err != nil {
		return nil, err
	}
	definitions := make(map[string][]metering.MeterVersion)
	var g metering.MeterVersion
	_, err = pgx.ForEachRow(rows, meterVersionFields(&g), func() error {
		if g.Selects() {
			definitions[g.EventType] = append(definitions[g.EventType], g)
		}
		return nil
	})
	return definitions, err
}

// decompressOwn lets a transaction change one customer's events of compressed chunks,
// however many, and decompresses nobody else's: TimescaleDB finds the customer's by the
// values that it sees in the plan. The Apache edition compresses none.
func decompressOwn(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, `
		select set_config(name, case name when 'plan_cache_mode' then 'force_custom_plan' else '0' end, true)
		from pg_settings
		where name in ('plan_cache_mode', 'timescaledb.max_tuples_decompressed_per_dml_transaction')`)
	return err
}

// eventsErased are events in columns.
type eventsErased struct {
	events     []metering.Event // with the fields that meters read
	instants   []time.Time
	ids        []uuid.UUID
	properties []*string
	keys       []*string // as they were sent
	names      []*string // that stand for them
	digests    [][]byte  // of the events
	keyDigests [][]byte
}

func (s Erasures) readEvents(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, after EventsAfter, limit int) (b eventsErased, err error) {
	rows, err := tx.Query(ctx, `
		select ts, id, event_type, value, properties::text, `+sentKey+`
		from events e
		where tenant_id = $1
		  and customer_id = $2
		  and (ts, id) > ($3, $4)
		  and erased is null
		order by ts, id
		limit $5`, tenant, customer, after.At, after.ID, limit)
	if err != nil {
		return b, err
	}
	var at time.Time
	var id uuid.UUID
	var eventType string
	var value metering.Decimal
	var properties, key *string
	_, err = pgx.ForEachRow(rows, []any{&at, &id, &eventType, &value, &properties, &key}, func() error {
		e := metering.Event{EventType: eventType, Value: value}
		if properties != nil {
			e.Properties = json.RawMessage(*properties)
		}
		b.events = append(b.events, e)
		b.instants, b.ids = append(b.instants, at), append(b.ids, id)
		b.properties, b.keys = append(b.properties, properties), append(b.keys, key)
		return nil
	})
	return b, err
}

// replace puts what stands for it where the events say something. What usage is
// grouped by stays grouped in the same way, and the values that meters count stay.
func (b *eventsErased) replace(k auditKey, tenant metering.TenantID, stay kept, definitions map[string][]metering.MeterVersion) error {
	for i := range b.ids {
		properties, key := "", ""
		if b.properties[i] != nil {
			properties = *b.properties[i]
		}
		if b.keys[i] != nil {
			key = *b.keys[i]
		}
		b.digests = append(b.digests, k.mac([]byte("erased event"), []byte(tenant.String()), []byte(b.ids[i].String()), []byte(properties), []byte(key)))
		b.names = append(b.names, nil)
		if key != "" {
			digest := k.erasedKey(tenant, key)
			b.keyDigests = append(b.keyDigests, digest)
			b.names[i] = new(erasedPrefix + hex.EncodeToString(digest[:erasedBytes]))
		}
		left, err := erasedProperties(k, tenant, &b.events[i], stay)
		if err != nil {
			return err
		}
		kept, err := measurements(&b.events[i], definitions[b.events[i].EventType])
		if err != nil {
			return err
		}
		if kept != nil {
			left[metering.MeasuredProperty] = kept
		}
		if b.properties[i] == nil && len(left) == 0 {
			continue
		}
		text, err := json.Marshal(left)
		if err != nil {
			return err
		}
		b.properties[i] = new(string(text))
	}
	return nil
}

// erasedProperties returns the properties by which the customer's usage is grouped, each under its
// whole path, with digests in place of personal values.
func erasedProperties(k auditKey, tenant metering.TenantID, e *metering.Event, stay kept) (map[string]json.RawMessage, error) {
	left := make(map[string]json.RawMessage)
	for name := range stay {
		value, err := e.Property(name)
		if err != nil {
			return nil, err
		}
		if value == nil {
			continue
		}
		if left[name] = value; !stay[name][string(value)] {
			left[name] = k.erasedValue(tenant, name, value)
		}
	}
	return left, nil
}

// measurements returns the value that each definition counts of an event, by its digest, as a JSON
// object: nil if none counts the event.
func measurements(e *metering.Event, definitions []metering.MeterVersion) (json.RawMessage, error) {
	values := make(map[string]metering.Decimal)
	for _, g := range definitions {
		m, err := g.Measure(e)
		if err != nil {
			return nil, err
		}
		if m.Verdict == metering.Counted {
			values[g.DefinitionDigest()] = m.Value
		}
	}
	if len(values) == 0 {
		return nil, nil
	}
	return json.Marshal(values)
}

// write stores what was replaced, and has the keys known by their digests alone.
func (b *eventsErased) write(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) error {
	if len(b.ids) == 0 {
		return nil
	}
	args := pgx.NamedArgs{
		"tenant": tenant, "customer": customer, "from": b.instants[0], "until": b.instants[len(b.instants)-1],
		"instants": b.instants, "ids": b.ids, "properties": b.properties, "names": b.names, "digests": b.digests, "keys": b.keys, "key_digests": b.keyDigests,
	}
	for _, statement := range []string{
		`
		insert into erased_event_keys (tenant_id, digest)
		select distinct @tenant::bigint, digest
		from unnest(@key_digests::bytea[]) as erased (digest)
		order by digest
		on conflict do nothing`,
		`delete from event_keys where tenant_id = @tenant and key = any(array(select event_key(sent) from unnest(@keys::text[]) as sent))`,
		`delete from event_conflicts where tenant_id = @tenant and key = any(array(select event_key(sent) from unnest(@keys::text[]) as sent))`,
		`
		update events e
		set properties = x.properties::jsonb, idempotency_key = x.name, idempotency_uuid = null, erased = x.digest
		from unnest(@instants::timestamptz[], @ids::uuid[], @properties::text[], @names::text[], @digests::bytea[]) as x (ts, id, properties, name, digest)
		where e.tenant_id = @tenant
		  and e.customer_id = @customer
		  and e.ts between @from and @until
		  and e.ts = x.ts
		  and e.id = x.id`,
	} {
		if _, err := tx.Exec(ctx, statement, args); err != nil {
			return err
		}
	}
	return nil
}

// Messages erases the customer's name from reports, messages and stored responses, and
// removes the customer's conflicts and the references to the customer's uncounted events.
func (s Erasures) Messages(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID) error {
	err := inTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := allowLongStatements(ctx, tx); err != nil {
			return err
		}
		args := pgx.NamedArgs{"tenant": tenant, "customer": customer, "id": customer.String(), "name": metering.ErasedName(customer)}
		for _, statement := range []string{
			`
			update billing_reports
			set body = convert_to(regexp_replace(convert_from(body, 'UTF8'), '"customer_external_id":\s*"([^"\\]|\\.)*"', '"customer_external_id":"' || @name || '"', 'g'), 'UTF8')
			where tenant_id = @tenant
			  and customer_id = @customer`,
			`
			update outbox
			set payload = payload || jsonb_build_object('customer_external_id', @name::text)
			where tenant_id = @tenant
			  and payload->>'customer_id' = @id`,
			`delete from event_conflicts where tenant_id = @tenant and customer_id = @customer`,
			`delete from uncounted_events where tenant_id = @tenant and customer_id = @customer`,
		} {
			if _, err := tx.Exec(ctx, statement, args); err != nil {
				return err
			}
		}
		return s.eraseAnswers(ctx, tx, tenant, customer)
	})
	if err != nil {
		return fmt.Errorf("erase messages: %w", err)
	}
	return nil
}

// eraseAnswers erases what the request that made the customer was answered, and its
// key: who repeats it makes another customer.
func (s Erasures) eraseAnswers(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID) error {
	rows, err := tx.Query(ctx, `
		select key
		from idempotency_keys
		where tenant_id = $1
		  and operation = 'create-customer'
		  and answer->>'id' = $2`, tenant, customer.String())
	if err != nil {
		return err
	}
	keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return err
	}
	for _, key := range keys {
		if isErasedValue(json.RawMessage(key)) {
			continue
		}
		_, err := tx.Exec(ctx, `
			update idempotency_keys
			set key = $3, request_hash = '', answer = json_build_object('id', $4::text, 'external_id', $5::text)
			where tenant_id = $1
			  and key = $2`, tenant, key, erasedPrefix+hex.EncodeToString(s.pool.audit.erasedKey(tenant, key)[:erasedBytes]), customer.String(), metering.ErasedName(customer))
		if err != nil {
			return err
		}
	}
	return nil
}

// Finish notes that nothing personal of the customer is left.
func (s Erasures) Finish(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) error {
	err := inTx(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			update customers
			set erasure_done_at = $3
			where tenant_id = $1
			  and id = $2
			  and erasure_done_at is null`, tenant, customer, metering.Instant(now))
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return auditChange(ctx, tx, tenant, metering.Scheduler, "customer.erased", customer.String(), told{"erased": false}, told{"erased": true})
	})
	if err != nil {
		return fmt.Errorf("finish erasure: %w", err)
	}
	return nil
}
