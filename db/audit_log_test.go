package db_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/audit"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
)

// chained creates a tenant with n entries in its audit log.
func chained(t *testing.T, store *db.DB, n int) (tenant metering.TenantID) {
	t.Helper()
	tenant = dbtest.Tenant(t, store).ID
	for i := range n - 1 {
		require.NoError(t, store.AuditLog.Record(t.Context(), tenant, metering.AuditEntry{
			Actor: "key_1", Action: "test.do", Resource: fmt.Sprintf("res_%d", i), Reason: "für “alle”\n", After: []byte(`{"b": 1.50,  "a":"\u00e9"}`),
		}))
	}
	return tenant
}

func verified(t *testing.T, store *db.DB, tenant metering.TenantID) metering.AuditHead {
	t.Helper()
	head, breaks, err := store.AuditLog.Verify(t.Context(), tenant, nil)
	require.NoError(t, err)
	require.Empty(t, breaks)
	return head
}

// TestConcurrentWritersDoNotForkAuditChain creates customers of one tenant and records entries of another,
// concurrently. Half of the creations conflict and leave no entry.
func TestConcurrentWritersDoNotForkAuditChain(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := chained(t, store, 1)
	other := dbtest.Tenant(t, store).ID
	const writers, each = 20, 10
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				c := metering.Customer{ExternalID: fmt.Sprintf("c-%d-%d", w, i)}
				_, err := store.Customers.Create(t.Context(), tenant, "key_1", c, clock.Now())
				require.NoError(t, err)
				_, err = store.Customers.Create(t.Context(), tenant, "key_1", c, clock.Now())
				require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
				require.NoError(t, store.AuditLog.Record(t.Context(), other, metering.AuditEntry{Actor: "key_2", Action: "test.do"}))
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1+writers*each, verified(t, store, tenant).Last)
	require.EqualValues(t, 1+writers*each, verified(t, store, other).Last)
}

func TestVerifyFindsChangesOfSuperuserToAuditLog(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statement string
		breaks    []string
	}{
		"an actor":   {`update audit_log set actor = 'key_2' where id = 3`, []string{"aud_3 was changed, or replaced by another entry"}},
		"a time":     {`update audit_log set at = at + interval '1 microsecond' where id = 3`, []string{"aud_3 was changed, or replaced by another entry"}},
		"the fields": {`update audit_log set after = '{"b":1.5,"a":"é"}' where id = 3`, []string{"aud_3 was changed, or replaced by another entry"}},
		"text is moved to another field": {
			`update audit_log set action = action || resource, resource = '' where id = 3`, []string{"aud_3 was changed, or replaced by another entry"},
		},
		"a MAC": {
			`update audit_log set mac = sha256('') where id = 3`,
			[]string{"aud_3 was changed, or replaced by another entry", "aud_4 was changed, or replaced by another entry"},
		},
		"an entry is deleted": {`delete from audit_log where id = 3`, []string{"aud_3 is missing"}},
		"several are deleted": {`delete from audit_log where id in (2, 3, 4)`, []string{"aud_2 to aud_4 are missing"}},
		"the first":           {`delete from audit_log where id = 1`, []string{"aud_1 is missing"}},
		"the last":            {`delete from audit_log where id = 6`, []string{"aud_6 is missing"}},
		"all":                 {`delete from audit_log where true`, []string{"aud_1 to aud_6 are missing"}},
		"two are swapped": {
			`update audit_log set id = 1003 where id = 3; update audit_log set id = 3 where id = 4; update audit_log set id = 4 where id = 1003`,
			[]string{"aud_3 was changed", "aud_4 was changed", "aud_5 was changed"},
		},
		"the last entries are deleted, and the head is reset": {
			`delete from audit_log where id > 4; update audit_heads set last_id = 4, mac = (select mac from audit_log where id = 4) where true`,
			[]string{"the head was changed"},
		},
		"the head is deleted": {`delete from audit_heads where true`, []string{"the head is missing"}},
		"an entry is added": {
			`insert into audit_log select tenant_id, 7, at, actor, action, resource, reason, address, request_id, before, after, mac from audit_log where id = 6`,
			[]string{"aud_7 was changed", "aud_7 and the entries after it were not added by Odometer"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := dbtest.Open(t)
			tenant := chained(t, store, 6)
			verified(t, store, tenant)
			_, err := dbtest.Conn(t).Exec(t.Context(), strings.ReplaceAll(c.statement, "where ", fmt.Sprintf("where tenant_id = %d and ", tenant)))
			require.NoError(t, err)
			_, breaks, err := store.AuditLog.Verify(t.Context(), tenant, nil)
			require.NoError(t, err)
			require.Len(t, breaks, len(c.breaks), strings.Join(breaks, "\n"))
			for i, want := range c.breaks {
				require.Contains(t, breaks[i], want)
			}
		})
	}
}

// TestVerifyFindsRestoredAuditLogByRecordedHead restores an earlier state of the audit log and its head. The restored
// chain is consistent, so only a recorded later head reveals the loss.
func TestVerifyFindsRestoredAuditLogByRecordedHead(t *testing.T) {
	t.Parallel()
	store, address := dbtest.Fresh(t)
	superuser, err := pgx.Connect(t.Context(), address)
	require.NoError(t, err)
	defer superuser.Close(t.Context())
	tenant := chained(t, store, 3)
	former := verified(t, store, tenant)
	_, err = superuser.Exec(t.Context(), `create table kept as select * from audit_heads`)
	require.NoError(t, err)
	for range 3 {
		require.NoError(t, store.AuditLog.Record(t.Context(), tenant, metering.AuditEntry{Actor: "key_1", Action: "test.do"}))
	}
	noted := verified(t, store, tenant)
	for _, head := range []metering.AuditHead{former, noted} {
		_, breaks, err := store.AuditLog.Verify(t.Context(), tenant, &head)
		require.NoError(t, err)
		require.Empty(t, breaks)
	}

	_, err = superuser.Exec(t.Context(), `delete from audit_log where id > 3; delete from audit_heads; insert into audit_heads select * from kept`)
	require.NoError(t, err)
	require.Equal(t, former, verified(t, store, tenant))
	_, breaks, err := store.AuditLog.Verify(t.Context(), tenant, &noted)
	require.NoError(t, err)
	require.Equal(t, []string{"aud_6 does not match the expected head: the log was truncated or rewritten"}, breaks)
	read, err := metering.ParseAuditHead(noted.String())
	require.NoError(t, err)
	require.Equal(t, noted, read)
}

func TestAuditLogDoesNotVerifyWithAnotherSecret(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	tenant := chained(t, store, 2)
	none, err := db.Open(t.Context(), dbtest.URL(t), nil, nil)
	require.NoError(t, err)
	defer none.Close()
	err = none.AuditLog.Record(t.Context(), tenant, metering.AuditEntry{Actor: "key_1", Action: "test.do"})
	require.ErrorContains(t, err, "without the secret", "no entry is written outside the chain")
	other, err := db.Open(t.Context(), dbtest.URL(t), []byte("another secret"), nil)
	require.NoError(t, err)
	defer other.Close()
	_, breaks, err := other.AuditLog.Verify(t.Context(), tenant, nil)
	require.NoError(t, err)
	require.Contains(t, breaks[len(breaks)-1], "ODOMETER_SECRET")
	verified(t, store, tenant)
}

func TestAuditLogIsFiltered(t *testing.T) {
	t.Parallel()
	store := dbtest.Open(t)
	ours, theirs := dbtest.Tenant(t, store).ID, dbtest.Tenant(t, store).ID
	for i, e := range []metering.AuditEntry{
		{Actor: "key_1", Action: "meter.create", Resource: "mtr_1"},
		{Actor: "key_2", Action: "meter.update", Resource: "mtr_1"},
		{Actor: "key_1", Action: "reconciliation.waive", Resource: "per_1 mtr_1"},
		{Actor: "key_1", Action: "price.set", Resource: "mtr_10"},
	} {
		ctx := audit.From(t.Context(), audit.Origin{Address: "192.0.2.7", RequestID: fmt.Sprintf("req-%d", i)})
		for _, tenant := range []metering.TenantID{ours, theirs} {
			require.NoError(t, store.AuditLog.Record(ctx, tenant, e))
		}
	}
	all, err := dbtest.Items(store.AuditLog.List(t.Context(), ours, access.AuditFilter{}, 0, 100))
	require.NoError(t, err)
	require.Len(t, all, 5) // with the entry of the tenant's creation
	require.Equal(t, "192.0.2.7", all[0].Address)
	for name, c := range map[string]struct {
		filter access.AuditFilter
		want   []metering.AuditID
	}{
		"actor":                {access.AuditFilter{Actor: "key_2"}, []metering.AuditID{3}},
		"action":               {access.AuditFilter{Action: "meter.update"}, []metering.AuditID{3}},
		"prefix of an action":  {access.AuditFilter{Action: "meter."}, []metering.AuditID{3, 2}},
		"resource":             {access.AuditFilter{Resource: "mtr_1"}, []metering.AuditID{3, 2}},
		"the first of several": {access.AuditFilter{Resource: "per_1"}, []metering.AuditID{4}},
		"request":              {access.AuditFilter{RequestID: "req-3"}, []metering.AuditID{5}},
		"start":                {access.AuditFilter{Start: &all[1].At}, []metering.AuditID{5, 4}},
		"end":                  {access.AuditFilter{End: &all[1].At}, []metering.AuditID{3, 2, 1}},
		"both":                 {access.AuditFilter{Actor: "key_1", Action: "price"}, []metering.AuditID{5}},
		"unknown actor":        {access.AuditFilter{Actor: "key_3"}, nil},
		"no pattern":           {access.AuditFilter{Action: "%"}, nil},
	} {
		entries, err := dbtest.Items(store.AuditLog.List(t.Context(), ours, c.filter, 0, 100))
		require.NoError(t, err)
		var got []metering.AuditID
		for _, e := range entries {
			got = append(got, e.ID)
		}
		require.Equal(t, c.want, got, name)
	}
}
