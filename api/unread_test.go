package api_test

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/db/dbtest"
)

// large creates a customer with this number of events. All except one have about 16 KB.
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

// unread sends a GET request and does not read the response.
func (b *bundle) unread(t testing.TB, path string) net.Conn {
	t.Helper()
	return b.stall(t, "", "GET "+path, "Authorization: Bearer "+b.key)
}

func TestUnreadExportsAreLimitedAndEnd(t *testing.T) {
	t.Parallel()
	ours := setup(t)
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
	var conns []net.Conn
	dbtest.Eventually(t, func() error {
		// One per attempt, because the export that answers sends may occupy a place itself.
		conns = append(conns, theirs.unread(t, exportAcme))
		return answers(429)()
	})
	a := theirs.send(t, "GET", exportAcme+"&page_size=1", "")
	a.problem(t, 429, "rate_limited")
	require.Equal(t, "10", a.header.Get("Retry-After"))
	require.Equal(t, 200, ours.send(t, "GET", exportAcme, "").status)
	require.Equal(t, 200, theirs.send(t, "GET", "/v1/customers", "").status)
	closeAll(conns)
	dbtest.Eventually(t, answers(200)) // the unread exports have ended
}

// closeAll closes the connections.
func closeAll(conns []net.Conn) {
	for _, conn := range conns {
		conn.Close()
	}
}

// largeCustomers creates this number of customers with metadata of 16 KB.
func (b *bundle) largeCustomers(t testing.TB, customers int) {
	t.Helper()
	_, err := dbtest.Conn(t).Exec(t.Context(), `
		insert into customers (tenant_id, external_id, metadata, created_at)
		select $1, n, jsonb_build_object('p', repeat('<', 16000)), now()
		from generate_series(1, $2::int) n`, b.tenant.ID, customers)
	require.NoError(t, err)
}

// idsOf returns the external IDs of a page of customers, and the token of the next page.
func (b *bundle) idsOf(t testing.TB, path string) (ids []string, next *string) {
	t.Helper()
	a := b.send(t, "GET", path, "")
	require.Equal(t, 200, a.status, a.body)
	page := struct {
		Data []struct {
			ExternalID string `json:"external_id"`
		}
		NextPageToken *string `json:"next_page_token"`
	}{}
	require.NoError(t, json.Unmarshal([]byte(a.body), &page))
	for _, c := range page.Data {
		ids = append(ids, c.ExternalID)
	}
	return ids, page.NextPageToken
}

func TestPageOfLargeItemsIsLimitedInBytesAndNextPageContinues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.largeCustomers(t, 150)
	const list = "/v1/customers?page_size=1000"
	var all []string
	for page := list; ; {
		ids, next := b.idsOf(t, page)
		require.NotEmpty(t, ids)
		require.Less(t, len(ids), 70, "a megabyte")
		all = append(all, ids...)
		if next == nil {
			break
		}
		page = list + "&page_token=" + *next
	}
	require.Len(t, all, 150)
	for i, id := range all {
		require.Equal(t, fmt.Sprint(i+1), id)
	}
}

func TestUnreadResponsesUseLimitedMemoryShareAndEnd(t *testing.T) {
	t.Parallel()
	ours := setup(t).replica(t, func(d *api.Deps) { d.AnswersBytes = 8 << 20 })
	theirs := ours.of(t, dbtest.Tenant(t, ours.store))
	ours.largeCustomers(t, 3)
	theirs.largeCustomers(t, 100)
	const list = "/v1/customers?page_size=60"
	size := func(want int) func() error {
		return func() error {
			if ids, _ := theirs.idsOf(t, list); len(ids) != want {
				return fmt.Errorf("a page has %d items", len(ids))
			}
			return nil
		}
	}
	require.NoError(t, size(60)())
	var conns []net.Conn
	dbtest.Eventually(t, func() error {
		conns = append(conns, theirs.unread(t, list))
		return size(1)()
	})
	ids, next := ours.idsOf(t, list)
	require.Len(t, ids, 3, "others have their own share")
	require.Nil(t, next)
	closeAll(conns)
	dbtest.Eventually(t, size(60)) // the unread responses have ended
}

// TestUnreadResponseEndsWhileClientStaysConnected checks that a response ends if its client stays connected and does
// not accept a part of the response in time.
func TestUnreadResponseEndsWhileClientStaysConnected(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.large(t, 1000)
	b.largeCustomers(t, 60)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	t.Cleanup(func() { log.Close() })
	hasty := b.replica(t, func(d *api.Deps) {
		d.AnswerTime, d.Log = time.Second, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	})
	hasty.unread(t, exportAcme)
	hasty.unread(t, "/v1/customers?page_size=60")
	dbtest.Eventually(t, func() error {
		written, err := os.ReadFile(log.Name())
		require.NoError(t, err)
		for _, ended := range []string{`route="GET /v1/usage/export"`, `route="GET /v1/customers"`, "i/o timeout"} {
			if !strings.Contains(string(written), ended) {
				return fmt.Errorf("the log has no %s: %s", ended, written)
			}
		}
		return nil
	})
}

// TestLargeUnpagedResponseIsRefusedBeyondMemoryShare checks that a response that is not a page is refused if it exceeds
// the tenant's share of the memory for responses.
func TestLargeUnpagedResponseIsRefusedBeyondMemoryShare(t *testing.T) {
	t.Parallel()
	b := setup(t).replica(t, func(d *api.Deps) { d.AnswersBytes = 256 << 10 })
	dbtest.Meter(t, b.store, b.tenant.ID, "calls", "call")
	require.Equal(t, 200, b.send(t, "PUT", "/v1/meters/calls/pricing", `{"overage_rate":1}`).status)
	_, err := dbtest.Conn(t).Exec(t.Context(), `
		insert into meter_prices (tenant_id, meter_id, version, terms, effective_from, created_by)
		select tenant_id, meter_id, version + n, terms, now() + n * interval '1 day', created_by
		from meter_prices, generate_series(1, 1000) n
		where tenant_id = $1`, b.tenant.ID)
	require.NoError(t, err)
	a := b.send(t, "GET", "/v1/meters/calls/pricing", "")
	a.problem(t, 503, "overloaded")
	require.NotEmpty(t, a.header.Get("Retry-After"))
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters/calls", "").status)
	dbtest.Eventually(t, func() error {
		found, err := b.deps.Metrics.(*prometheus.Registry).Gather()
		for _, metric := range found {
			if metric.GetName() == "odometer_requests_overloaded_total" {
				return nil
			}
		}
		return cmp.Or(err, errors.New("the refusal is not counted"))
	})
}
