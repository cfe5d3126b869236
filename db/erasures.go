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

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// Erasures removes the personal data of a customer from the whole database, and leaves every number
// unchanged. Each step may be repeated.
type Erasures struct {
	pool   *pg.Pool
	ledger ledger.Ledger
}

// ErasingCustomer identifies a customer with an unfinished erasure.
type ErasingCustomer struct {
	Tenant metering.TenantID
	ID     metering.CustomerID
}

// erasedValue returns the replacement of a property's value. Different values have different replacements.
// null and replacements are returned unchanged.
func erasedValue(digests audit.Key, tenant metering.TenantID, property string, value json.RawMessage) json.RawMessage {
	if string(value) == "null" || isErasedValue(value) {
		return value
	}
	text, err := json.Marshal(erasedPrefix + hex.EncodeToString(digests.MAC([]byte("erased value"), []byte(tenant.String()), []byte(property), value)[:erasedBytes]))
	if err != nil {
		panic(err) // cannot happen: hexadecimal digits are valid text
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

// Begin renames the customer, so that no more events can arrive under its external_id. It also deletes the
// customer's alerts. A receiver of statements that knows the customer by its previous name gets no further
// statements of the customer. Begin returns CodeNotFound if there is no such customer, and CodePaused while the
// customer is paused and the tenant has a provider. It returns CodeConflict, with the reason, if the customer
// is erased already, and while the customer's billing is open.
func (s Erasures) Begin(ctx context.Context, tenant metering.TenantID, actor metering.Actor, externalID, reason string, now time.Time) (erased metering.Customer, err error) {
	err = s.ledger.Exclusively(ctx, tenant, func(tx pgx.Tx) error {
		former, err := catalog.LockCustomer(ctx, tx, tenant, externalID)
		if err != nil {
			return err
		}
		if !former.ErasedAt.IsZero() {
			return metering.Errorf(metering.CodeConflict, "the customer is erased already")
		}
		if err := ledger.TakeTurn(ctx, tx, tenant, former.ID); err != nil {
			return err
		}
		if err := ledger.RefusePaused(ctx, tx, tenant, former.ID); err != nil {
			return err
		}
		if err := ledger.RefuseUnreported(ctx, tx, tenant, former.ID, now); err != nil {
			return err
		}
		if err := ledger.RefuseOpenBilling(ctx, tx, tenant, former.ID); err != nil {
			return err
		}
		if erased, err = s.rename(ctx, tx, former, now); err != nil {
			return err
		}
		if err := s.eraseAlerts(ctx, tx, former, now); err != nil {
			return err
		}
		if err := ledger.MarkRenamed(ctx, tx, tenant, erased.ID); err != nil {
			return err
		}
		if err := raiseErasures(ctx, tx, tenant); err != nil {
			return err
		}
		return audit.RecordDecision(ctx, tx, tenant, audit.Decision{Actor: actor, Action: "customer.erase", Resource: erased.ID.String(), Reason: reason}, catalog.AuditedCustomer(former), catalog.AuditedCustomer(erased))
	})
	if err != nil {
		return metering.Customer{}, fmt.Errorf("begin erasure: %w", err)
	}
	return erased, nil
}

// eraseAlerts deletes the customer's alerts, and erases the stored responses of the requests that created
// them. The responses contain the external_id, so they can be found only before it is erased.
func (s Erasures) eraseAlerts(ctx context.Context, tx pgx.Tx, c metering.Customer, now time.Time) error {
	if err := limits.MarkDeleted(ctx, tx, c.TenantID, `customer_id = $3`, c.ID, now); err != nil {
		return err
	}
	return s.eraseAnswers(ctx, tx, c.TenantID, `operation = 'create-alert' and answer->>'customer' = $2`, c.ExternalID, nil)
}

// rename replaces the customer's external_id, name and metadata.
func (s Erasures) rename(ctx context.Context, tx pgx.Tx, c metering.Customer, now time.Time) (erased metering.Customer, err error) {
	digest := hex.EncodeToString(s.pool.AuditKey().MAC([]byte("erased customer"), []byte(c.TenantID.String()), []byte(c.ExternalID), []byte(c.Name), c.Metadata))
	err = tx.QueryRow(ctx, `
		update customers c
		set external_id = $3, name = $3, metadata = jsonb_build_object('erased', $4::text), erased_at = $5, archived_at = coalesce(archived_at, $5)
		where c.tenant_id = $1
		  and c.id = $2
		returning `+catalog.CustomerColumns, c.TenantID, c.ID, metering.ErasedName(c.ID), digest, metering.Instant(now)).Scan(catalog.CustomerFields(&erased)...)
	return erased, catalog.CustomerConflict(err)
}

// raiseErasures makes ingest look up the tenant's customers, groups and keys again, instead of storing events with
// an earlier look-up. The caller holds the tenant's lock.
func raiseErasures(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	_, err := tx.Exec(ctx, `update tenants set erasures = erasures + 1 where id = $1`, tenant)
	return err
}

// Unfinished returns the erasures of all tenants that began before the instant and are not done.
func (s Erasures) Unfinished(ctx context.Context, before time.Time) ([]ErasingCustomer, error) {
	rows, err := s.pool.Query(ctx, `
		select tenant_id, id
		from customers
		where erased_at < $1
		  and erasure_done_at is null
		order by erased_at`, before)
	if err != nil {
		return nil, fmt.Errorf("list erasures: %w", pg.Coded(err))
	}
	erasing, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ErasingCustomer])
	return erasing, pg.Coded(err)
}

// groupUsed is a group that a customer has used, of a meter version with group_by.
type groupUsed struct {
	Version metering.MeterVersionID
	ID      metering.GroupID
	Key     json.RawMessage
	GroupBy []string
	Shared  bool // another customer has used the group too
}

// groupsOf returns the groups that the customer has used, except for $other.
func groupsOf(ctx context.Context, q pg.Querier, tenant metering.TenantID, customer metering.CustomerID) ([]groupUsed, error) {
	rows, err := q.Query(ctx, `
		select g.meter_version_id, g.group_id, g.group_key, v.group_by, `+usage.GroupUsedByOthers+`
		from usage_groups g
		join meter_versions v on v.tenant_id = g.tenant_id and v.id = g.meter_version_id and v.group_by <> '{}'
		where g.tenant_id = $1
		  and g.group_id <> $3
		  and (g.meter_version_id, g.group_id) in (`+usage.GroupsUsed+`)
		order by 1, 2`, tenant, customer, [16]byte(metering.OtherGroup.ID))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (g groupUsed, err error) {
		return g, row.Scan(&g.Version, (*[16]byte)(&g.ID), &g.Key, &g.GroupBy, &g.Shared)
	})
}

// kept holds the values of properties that are not erased, as spelled in the keys of groups.
type kept map[string]map[string]bool

// add adds the values of a group's key.
func (k kept) add(key json.RawMessage) error {
	values, err := valuesOf(key)
	if err != nil {
		return err
	}
	for name, value := range values {
		k.addValue(name, string(value))
	}
	return nil
}

func (k kept) addValue(property, value string) {
	if k[property] == nil {
		k[property] = make(map[string]bool)
	}
	k[property][value] = true
}

// valuesOf returns the values of a group's key in their canonical spelling.
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

// Groups replaces, once, the keys of groups that only the customer has used, and the dimension values in the
// customer's charges. It also deletes the groups without usage, except for those that a quota or an alert of
// the tenant or of another customer names. It returns CodeBackfilling while a meter of the tenant is
// backfilling. Until Finish, backfills of the tenant wait, because they would count events both before and
// after their erasure.
func (s Erasures) Groups(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.AllowLongStatements(ctx, tx); err != nil {
			return err
		}
		unused, err := findUnusedGroups(ctx, tx, tenant, customer) // before ingest has to wait
		if err != nil {
			return err
		}
		if err := pg.LockTenant(ctx, tx, tenant); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `
			update customers
			set groups_erased_at = $3
			where tenant_id = $1
			  and id = $2
			  and groups_erased_at is null`, tenant, customer, metering.Instant(now))
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		if err := refuseBackfilling(ctx, tx, tenant); err != nil {
			return err
		}
		if err := usage.FoldAll(ctx, tx, tenant); err != nil {
			return err
		}
		used, err := groupsOf(ctx, tx, tenant, customer)
		if err != nil {
			return err
		}
		if err := s.replaceGroups(ctx, tx, tenant, customer, used); err != nil {
			return err
		}
		if err := unused.delete(ctx, tx, tenant, customer); err != nil {
			return err
		}
		return raiseErasures(ctx, tx, tenant)
	})
	if err != nil {
		return fmt.Errorf("erase groups: %w", err)
	}
	return nil
}

func refuseBackfilling(ctx context.Context, tx pgx.Tx, tenant metering.TenantID) error {
	tag, err := tx.Exec(ctx, `select from meter_versions where tenant_id = $1 and status = 'backfilling'`, tenant)
	if err == nil && tag.RowsAffected() > 0 {
		err = metering.Errorf(metering.CodeBackfilling, "a meter is backfilling: the erasure continues after the backfill")
	}
	return err
}

func (s Erasures) replaceGroups(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, customer metering.CustomerID, used []groupUsed) error {
	stay := make(kept)
	if err := stay.keepPriced(ctx, tx, tenant); err != nil {
		return err
	}
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
		next, err := s.replacementGroup(tenant, g, stay)
		if err != nil {
			return err
		}
		if next.ID == g.ID {
			continue
		}
		args := pgx.NamedArgs{"tenant": tenant, "customer": customer, "version": g.Version, "from": [16]byte(g.ID), "next": [16]byte(next.ID), "key": string(next.Key)}
		for _, statement := range []string{
			`insert into usage_groups (tenant_id, meter_version_id, group_id, group_key) values (@tenant, @version, @next, @key::jsonb) on conflict do nothing`,
			usage.RegroupHours, usage.RegroupMonths,
			`delete from usage_groups g where tenant_id = @tenant and meter_version_id = @version and group_id = @from and not ` + groupNamedByOthers,
		} {
			if _, err := tx.Exec(ctx, statement, args); err != nil {
				return err
			}
		}
	}
	return s.eraseDimensions(ctx, tx, tenant, customer, stay)
}

// replacementGroup returns the group that takes the place of g.
func (s Erasures) replacementGroup(tenant metering.TenantID, g groupUsed, stay kept) (metering.Group, error) {
	key, err := s.erasedKey(tenant, g.Key, stay)
	if err != nil {
		return metering.Group{}, err
	}
	return metering.MeterVersion{GroupBy: g.GroupBy}.GroupOf(key)
}

// erasedKey replaces the values of a group key, except for the values in stay.
func (s Erasures) erasedKey(tenant metering.TenantID, key json.RawMessage, stay kept) (json.RawMessage, error) {
	values, err := valuesOf(key)
	if err != nil {
		return nil, err
	}
	for name, value := range values {
		if !stay[name][string(value)] {
			values[name] = erasedValue(s.pool.AuditKey(), tenant, name, value)
		}
	}
	return json.Marshal(values)
}

// Messages erases the customer's name from reports, messages and stored responses. It also removes the
// customer's conflicts, quotas and reservations, and the references to its uncounted events.
func (s Erasures) Messages(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		if err := pg.AllowLongStatements(ctx, tx); err != nil {
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
			  || case when kind = 'alert.triggered' then jsonb_build_object('alert', payload->'alert' || jsonb_build_object('name', @name::text)) else '{}' end
			where tenant_id = @tenant
			  and payload->>'customer_id' = @id`,
			`delete from event_conflicts where tenant_id = @tenant and customer_id = @customer`,
			`delete from uncounted_events where tenant_id = @tenant and customer_id = @customer`,
			`delete from quota_reservations where tenant_id = @tenant and customer_id = @customer`, // the client chose the ID of a reservation
			`delete from quotas where tenant_id = @tenant and customer_id = @customer`,             // the group of a quota may name a person
			`update alerts set group_id = null, group_key = null where tenant_id = @tenant and customer_id = @customer`,
		} {
			if _, err := tx.Exec(ctx, statement, args); err != nil {
				return err
			}
		}
		return s.eraseAnswers(ctx, tx, tenant, `operation = 'create-customer' and answer->>'id' = $2`, customer.String(), map[string]string{"external_id": metering.ErasedName(customer)})
	})
	if err != nil {
		return fmt.Errorf("erase messages: %w", err)
	}
	return nil
}

// eraseAnswers replaces the idempotency keys that meet the condition, which refers to arg as $2. It also
// replaces their stored responses except for the ID. Repeating such a request creates another object.
func (s Erasures) eraseAnswers(ctx context.Context, tx pgx.Tx, tenant metering.TenantID, condition, arg string, added map[string]string) error {
	rows, err := tx.Query(ctx, `
		select key
		from idempotency_keys
		where tenant_id = $1
		  and `+condition, tenant, arg)
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
			set key = $3, request_hash = '', answer = (jsonb_build_object('id', answer->>'id') || coalesce($4::jsonb, '{}'))::json
			where tenant_id = $1
			  and key = $2`, tenant, key, erasedPrefix+hex.EncodeToString(usage.ErasedKey(s.pool.AuditKey(), tenant, key)[:erasedBytes]), added)
		if err != nil {
			return err
		}
	}
	return nil
}

// Finish records that no personal data of the customer is left.
func (s Erasures) Finish(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID, now time.Time) error {
	err := pg.InTx(ctx, s.pool, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			update customers
			set erasure_done_at = $3
			where tenant_id = $1
			  and id = $2
			  and erasure_done_at is null`, tenant, customer, metering.Instant(now))
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return audit.RecordChange(ctx, tx, tenant, metering.Scheduler, "customer.erased", customer.String(), audit.Fields{"erased": false}, audit.Fields{"erased": true})
	})
	if err != nil {
		return fmt.Errorf("finish erasure: %w", err)
	}
	return nil
}
