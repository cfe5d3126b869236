package api_test

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/db/dbtest"
)

// large gives a tenant a customer with so many events of 16 KiB.
func (b *bundle) large(t testing.TB, events int) {
	t.Helper()
	b.ingest(t, "/v1/events", hello)
	_, err := dbtest.Conn(t).Exec(t.Context(), `
		insert into events (tenant_id, customer_id, ts, id, event_type, value, properties, ingested_at, epoch)
		select e.tenant_id, e.customer_id, e.ts - n * interval '1 millisecond', gen_random_uuid(), e.event_type, n,
		  jsonb_build_object('p', repeat('x', 16000)), e.ingested_at, e.epoch
		from events e, generate_series(1, $2::int) n
		where e.tenant_id = $1`, b.tenant.ID, events-1)
	require.NoError(t, err)
}

const exportAcme = "/v1/usage/export?customer=acme"

// unread asks for something and reads none of the answer.
func (b *bundle) unread(t testing.TB, path string) net.Conn {
	t.Helper()
	conn := b.stall(t, "", "GET "+path, "Authorization: Bearer "+b.key)
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4<<10))
	return conn
}

func TestExportsThatNobodyReadsAreFewAndEnd(t *testing.T) {
	t.Parallel()
	ours := setup(t).replica(t, func(d *api.Deps) { d.AnswerTime = 20 * time.Second })
	theirs := ours.of(t, dbtest.Tenant(t, ours.store))
	ours.ingest(t, "/v1/events", hello)
	theirs.large(t, 1000)
	answers := func(want int) func() error {
		return func() error {
			if status := theirs.send(t, "GET", exportAcme+"&page_size=1", "").status; status != want {
				return fmt.Errorf("it answers %d", status)
			}
			return nil
		}
	}
	dbtest.Eventually(t, func() error {
		theirs.unread(t, exportAcme) // who looks whether there are enough by now may have taken one's place
		return answers(429)()
	})
	a := theirs.send(t, "GET", exportAcme+"&page_size=1", "")
	a.problem(t, 429, "rate_limited")
	require.Equal(t, "10", a.header.Get("Retry-After"))
	require.Equal(t, 200, ours.send(t, "GET", exportAcme, "").status)
	require.Equal(t, 200, theirs.send(t, "GET", "/v1/customers", "").status)
	dbtest.Eventually(t, answers(200)) // the others have ended
}

func TestAListThatNobodyReadsEnds(t *testing.T) {
	t.Parallel()
	b := setup(t).replica(t, func(d *api.Deps) { d.AnswerTime = 2 * time.Second })
	_, err := dbtest.Conn(t).Exec(t.Context(), `
		insert into customers (tenant_id, external_id, metadata, created_at)
		select $1, n, jsonb_build_object('p', repeat('x', 16000)), now()
		from generate_series(1, 1000) n`, b.tenant.ID)
	require.NoError(t, err)
	for range 3 {
		b.unread(t, "/v1/customers?page_size=1000")
	}
	require.Equal(t, 200, b.send(t, "GET", "/v1/customers?page_size=1000", "").status, "its turn comes when the others have ended")
}
