package worker_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/clock"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// moody is a receiver with answers that depend on the customer's name. If the name begins with "fails", it answers 500.
// If it begins with "hangs", it never answers. It answers all others with 204, and names that begin with "slow" only
// after twice activities.Beat.
type moody struct {
	mu    sync.Mutex
	taken map[string]int // accepted statements by customer
}

func (m *moody) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var message struct {
		Data struct {
			Customer string `json:"customer_external_id"`
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	switch name := message.Data.Customer; {
	case strings.HasPrefix(name, "fails"):
		w.WriteHeader(http.StatusInternalServerError)
	case strings.HasPrefix(name, "hangs"):
		<-r.Context().Done()
	case strings.HasPrefix(name, "slow"):
		select {
		case <-r.Context().Done():
			return
		case <-time.After(2 * activities.Beat):
		}
		fallthrough
	default:
		m.mu.Lock()
		m.taken[name]++
		m.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	}
}

// customers returns the number of customers with an accepted statement.
func (m *moody) customers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.taken)
}

// TestFailingCustomersDoNotDelayOtherCustomers begins with customers that fail: six get errors, two get no answer, and
// the totals of one customer cannot be read. One run of Auto-Sync reports all other customers, and one run of
// ClosePeriod closes their periods. The last customer is slow. The attempt does not lose its earlier work meanwhile.
func TestFailingCustomersDoNotDelayOtherCustomers(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	receiver := &moody{taken: map[string]int{}}
	server := httptest.NewServer(receiver)
	t.Cleanup(server.Close)
	s.useProvider(server.URL)
	month := billing.CalendarPeriod(clock.Month(time.Now(), -2), time.UTC)
	var events []metering.Event
	names := []string{"fails-0", "fails-1", "fails-2", "fails-3", "fails-4", "fails-5", "broken", "hangs-0", "hangs-1"}
	const others = 30
	for i := range others {
		names = append(names, fmt.Sprintf("other-%d", i))
	}
	names[len(names)-1] = "slow"
	for _, name := range names {
		dbtest.Customer(t, s.store, s.tenant, name)
		events = append(events, dbtest.Event(t, "api_call", name, month.Start.AddDate(0, 0, 6), "3", "", ""))
	}
	_, err := s.writer.Ingest(t.Context(), s.tenant, events)
	require.NoError(t, err)
	require.NoError(t, s.store.Folds.Tenant(t.Context(), s.tenant))
	conn := s.connect()
	for _, statement := range []string{
		`delete from customers where tenant_id = $1 and external_id = 'canary-customer'`,
		`update customers set created_at = now() - interval '70 days' where tenant_id = $1`,
		`update usage_monthly set sum = 'NaN' where tenant_id = $1 and customer_id = (select id from customers where tenant_id = $1 and external_id = 'broken')`,
	} {
		_, err := conn.Exec(t.Context(), statement, s.tenant)
		require.NoError(t, err)
	}
	s.work()
	s.schedule()
	_, result := s.autoSync()
	if !s.isRetried(s.lastAutoSync()) {
		require.GreaterOrEqual(t, result.Sent, others)
		require.Equal(t, len(names)-others, result.Failed)
		require.Equal(t, others, receiver.customers())
	}
	dbtest.Eventually(t, func() error { // on a busy machine, the failed customers' own runs report the rest
		if got := receiver.customers(); got != others {
			return fmt.Errorf("%d of %d are reported", got, others)
		}
		return nil
	})

	dbtest.Eventually(t, func() error { return workflows.StartClosePeriod(t.Context(), s.temporal, s.tenant) })
	dbtest.Eventually(t, func() error {
		var closed int
		err := conn.QueryRow(t.Context(), `
			select count(distinct p.customer_id)
			from billing_periods p
			join customers c on c.tenant_id = p.tenant_id and c.id = p.customer_id
			where p.tenant_id = $1 and p.closed_at is not null and p.starts_at = $2 and (c.external_id like 'other%' or c.external_id = 'slow')`, s.tenant, month.Start).Scan(&closed)
		if err == nil && closed < others {
			err = fmt.Errorf("%d of %d are closed", closed, others)
		}
		return err
	})
}
