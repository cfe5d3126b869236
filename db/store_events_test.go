package db_test

import (
	"fmt"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// TestFewAndManyEventsAreStoredAlike checks that the stored rows are the same for few and for many events. Few events
// are stored by INSERT together with other statements, and many by COPY.
func TestFewAndManyEventsAreStoredAlike(t *testing.T) {
	t.Parallel()
	store, conn := dbtest.Open(t), dbtest.Conn(t)
	values := []string{"1", "-0.000000000001", "123456789012345678.123456789012", "100"}
	properties := []string{"", `{}`, `{"model":"größer","n":1.10,"deep":{"list":[null,"\"{,}"]}}`}
	keys := []string{"none", "text, with \"quotes\" and {braces}", "uuid"}
	sent := func(repeats int) []metering.Event {
		var events []metering.Event
		for repeat := range repeats {
			for i := range len(values) * len(properties) * len(keys) {
				key := ""
				switch k := keys[i/len(values)/len(properties)]; k {
				case "none":
				case "uuid":
					key = uuid.NewSHA1(uuid.NameSpaceOID, fmt.Append(nil, repeat, i)).String()
				default:
					key = fmt.Sprint(k, repeat, i)
				}
				events = append(events, dbtest.Event(t, fmt.Sprint("type ", i%5), fmt.Sprint("customer ", i%3), november.AddDate(0, 0, -i), values[i%len(values)], key, properties[i/len(values)%len(properties)]))
			}
		}
		return events
	}
	stored := func(repeats, most int) []string {
		tenant := dbtest.Tenant(t, store).ID
		dbtest.Meter(t, store, tenant, "calls", "type 1", "model")
		w := newWriter(t, store, dbtest.WriterOptions)
		events := sent(repeats)
		for len(events) > 0 {
			n := min(most, len(events))
			_, err := w.Ingest(t.Context(), tenant, events[:n])
			require.NoError(t, err)
			events = events[n:]
		}
		requireRollupsEqualARecount(t, conn, tenant)
		rows, err := conn.Query(t.Context(), `
			select concat_ws(' | ', c.external_id, e.ts, e.epoch, e.event_type, e.value, e.properties, e.idempotency_uuid, e.idempotency_key, k.digest, k.undated)
			from events e
			join customers c on c.tenant_id = e.tenant_id and c.id = e.customer_id
			left join event_keys k on k.tenant_id = e.tenant_id and k.key = e.idempotency_uuid
			where e.tenant_id = $1 order by 1`, tenant)
		require.NoError(t, err)
		texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		return texts
	}
	const repeats = 8 // of 36 events
	many := stored(repeats, 8*36)
	require.Len(t, many, repeats*36)
	require.Equal(t, many, stored(repeats, 7), "seven at once")
	require.Equal(t, many, stored(repeats, 1), "one at once")
}
