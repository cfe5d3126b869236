package main_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/metering"
)

// reserving reserves usage of customers with a hard quota, and settles, extends, releases or leaves the
// reservations. It uses three replicas of the API, which are killed repeatedly.
type reserving struct {
	*replicas

	operations atomic.Int64
	most       int64 // operations
	limit      int64 // of each customer; the operations reach it

	mu      sync.Mutex
	settled map[string]int64 // settled usage by customer
}

const reservingCustomers = 10

// TestDrillReservationsStayWithinTheLimit makes RESERVATIONS operations, or 6,000. Reservations of customers
// with an even number do not expire. The usage and reservations of these customers are within the limit at any
// time. Settled usage is counted once, even if replicas are killed and requests are repeated.
func TestDrillReservationsStayWithinTheLimit(t *testing.T) {
	const servers, callers = 3, 24
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable, Env: []string{"CALLS_PER_MINUTE=100000000", "MAX_REQUESTS_PER_MINUTE=2147483647"}})
	_, key := system.Tenant(t)
	most, err := strconv.ParseInt(cmp.Or(os.Getenv("RESERVATIONS"), "6000"), 10, 64)
	require.NoError(t, err)
	r := &reserving{replicas: &replicas{T: t, key: key}, most: most, limit: most / 60, settled: make(map[string]int64)}
	for range servers {
		r.apis = append(r.apis, system.API(t))
	}
	r.must("POST", "/v1/meters", `{"slug":"calls","event_type":"call","aggregation":"sum"}`)
	for n := range reservingCustomers {
		r.must("POST", "/v1/customers", fmt.Sprintf(`{"external_id":"c%d"}`, n))
		r.must("PUT", "/v1/quotas", fmt.Sprintf(`{"customer":"c%d","meter":"calls","limit":%d,"mode":"hard","period":"lifetime"}`, n, r.limit))
	}
	stop, stopped := context.WithCancel(t.Context())
	var around, calling sync.WaitGroup
	around.Go(func() { r.kill(stop) })
	around.Go(func() { r.watch(stop) })
	for name := range callers {
		calling.Go(func() {
			for n := 0; r.operations.Load() < r.most; n++ {
				r.use(fmt.Sprintf("%d-%d", name, n))
			}
		})
	}
	calling.Wait()
	stopped()
	around.Wait()

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `select c.external_id, sum(e.value)::bigint from events e join customers c on c.tenant_id = e.tenant_id and c.id = e.customer_id group by 1`)
	require.NoError(t, err)
	stored := make(map[string]int64)
	var customer string
	var sum int64
	_, err = pgx.ForEachRow(rows, []any{&customer, &sum}, func() error { stored[customer] = sum; return nil })
	require.NoError(t, err)
	require.Equal(t, r.settled, stored, "what is settled is stored once")
	requireNoDiscrepancy(t, conn, "usage_hours", "hour", "hour")
	r.requireWithinLimit()
	t.Logf("%d operations; settled: %v of %d", r.operations.Load(), r.settled, r.limit)
}

// kill restarts the replicas one after the other while operations are in progress.
func (r *reserving) kill(stop context.Context) {
	const kills = 12
	for n := range int64(kills) {
		dbtest.Eventually(r, func() error {
			if done := r.operations.Load(); done < (n+1)*r.most/(kills+1) && stop.Err() == nil {
				return fmt.Errorf("%d operations", done)
			}
			return nil
		})
		if stop.Err() != nil {
			return
		}
		r.apis[n%int64(len(r.apis))].Restart(r)
	}
}

// watch checks the quotas repeatedly while operations are in progress.
func (r *reserving) watch(stop context.Context) {
	for stop.Err() == nil {
		r.requireWithinLimit()
	}
}

// requireWithinLimit requires that usage and reservations of each customer with an even number are within the limit.
func (r *reserving) requireWithinLimit() {
	r.Helper()
	var checks []string
	for n := 0; n < reservingCustomers; n += 2 {
		checks = append(checks, fmt.Sprintf(`{"customer":"c%d","meter":"calls","amount":0}`, n))
	}
	_, body := r.send("POST", "/v1/quotas/check", `{"checks":[`+strings.Join(checks, ",")+`]}`)
	var answer struct {
		Data []struct{ Used, Reserved json.Number }
	}
	require.NoError(r, json.Unmarshal([]byte(body), &answer), body)
	require.Len(r, answer.Data, len(checks))
	for _, level := range answer.Data {
		together := metering.MustDecimal(level.Used.String()).Add(metering.MustDecimal(level.Reserved.String()))
		require.LessOrEqual(r, together.Cmp(metering.Whole(r.limit)), 0, body)
	}
}

// use reserves some usage of a customer, and ends the reservation in one of several ways.
func (r *reserving) use(id string) {
	n := rand.IntN(reservingCustomers)
	customer, amount := fmt.Sprintf("c%d", n), rand.Int64N(5)+1
	expires, mayExpire := 3600, n%2 == 1
	if mayExpire {
		expires = 1
	}
	status, body := r.send("POST", "/v1/quotas/reserve", fmt.Sprintf(`{"id":%q,"customer":%q,"amounts":[{"meter":"calls","amount":%d}],"expires_in":%d}`, id, customer, amount, expires))
	if status == http.StatusOK {
		return // the limit is reached
	}
	if status == http.StatusConflict && mayExpire {
		return // an answer was lost, and the reservation has expired since
	}
	require.Equal(r, http.StatusCreated, status, body)
	path := "/v1/quotas/reservations/" + id
	if rand.IntN(3) == 0 {
		r.send("POST", path+"/extend", `{"expires_in":3600}`)
	}
	switch rand.IntN(4) {
	case 0: // released
		status, body := r.send("POST", path+"/release", "")
		require.Equal(r, http.StatusOK, status, body)
	case 1: // the test does not end it: it expires or stays open
	default:
		r.settle(path, customer, rand.Int64N(amount)+1)
	}
}

// settle settles a reservation twice concurrently.
func (r *reserving) settle(path, customer string, value int64) {
	event := fmt.Sprintf(`{"events":[{"event_type":"call","customer_id":%q,"value":%d}]}`, customer, value)
	var twice sync.WaitGroup
	for range 2 {
		twice.Go(func() {
			status, body := r.send("POST", path+"/settle", event)
			if status != http.StatusOK {
				r.Errorf("%d %s", status, body)
			}
		})
	}
	twice.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled[customer] += value
}

// send counts an operation and sends the request.
func (r *reserving) send(method, path, body string) (status int, answer string) {
	r.Helper()
	r.operations.Add(1)
	return r.replicas.send(method, path, body)
}
