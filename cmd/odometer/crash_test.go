package main_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// TestDrillAKilledAPILosesNoAnsweredEvent kills the API repeatedly while eight clients send events to it.
// Events without a key are sent once, even if the answer is lost. Events with a key are repeated until they
// are answered.
func TestDrillAKilledAPILosesNoAnsweredEvent(t *testing.T) {
	const kills, senders = 8, 8
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable})
	_, key := system.Tenant(t)
	api := system.API(t)
	createMeter(t, proc.Dial(t, api.URL, key), "calls", "call")

	var mu sync.Mutex
	answered, unanswered := make(map[string]bool), make(map[string]bool)
	stop, stopped := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for name := range senders {
		group.Go(func() {
			c := proc.Dial(t, api.URL, key)
			for n := 0; stop.Err() == nil; n++ {
				mark := fmt.Sprintf("%d-%d", name, n)
				ok := sendMarked(t, c, mark, n%2 == 0)
				mu.Lock()
				if ok {
					answered[mark] = true
				} else {
					unanswered[mark] = true
				}
				mu.Unlock()
			}
		})
	}
	for n := range kills {
		dbtest.Eventually(t, func() error {
			mu.Lock()
			defer mu.Unlock()
			if len(answered) < (n+1)*200 {
				return fmt.Errorf("only %d requests are answered", len(answered))
			}
			return nil
		})
		api.Restart(t)
	}
	stopped()
	group.Wait()

	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	rows, err := conn.Query(t.Context(), `select properties ->> 'mark', count(*) from events group by 1`)
	require.NoError(t, err)
	stored := make(map[string]int)
	var mark string
	var count int
	_, err = pgx.ForEachRow(rows, []any{&mark, &count}, func() error { stored[mark] = count; return nil })
	require.NoError(t, err)
	for mark := range answered {
		require.Equal(t, batchOfMark, stored[mark], "answered request %s", mark)
	}
	for mark := range unanswered {
		require.Contains(t, []int{0, batchOfMark}, stored[mark], "unanswered request %s is stored whole, once, or not at all", mark)
	}
	require.NotEmpty(t, unanswered, "no kill has met a request")
	requireNoDiscrepancy(t, conn, "usage_hours", "hour", "hour")
}

const batchOfMark = 5

// sendMarked sends a batch and reports whether it was answered. It repeats a batch with keys until it is
// answered.
func sendMarked(t *testing.T, c *client.ClientWithResponses, mark string, keyed bool) bool {
	batch := client.EventBatch{}
	for i := range batchOfMark {
		e := client.Event{EventType: "call", CustomerId: "acme", Properties: &map[string]any{"mark": mark}}
		if keyed {
			k := fmt.Sprintf("%s-%d", mark, i)
			e.IdempotencyKey = &k
		}
		batch.Events = append(batch.Events, e)
	}
	for {
		answer, err := c.IngestEventsWithResponse(t.Context(), batch)
		if err == nil && answer.StatusCode() == http.StatusOK {
			return true
		}
		if !keyed {
			return false
		}
		select {
		case <-t.Context().Done():
			return false
		case <-time.After(10 * time.Millisecond):
		}
	}
}
