package usage

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/db/pg"
	"github.com/odometer-metering/odometer/metering"
)

// EventCounts stores the number of received events by tenant, hour and outcome. Counts are written
// asynchronously, so a killed process loses its unwritten counts. They inform operators; no invoice depends on
// them.
type EventCounts struct{ pool *pg.Pool }

// Outcomes of an event that is not rejected. The outcome of a rejected event is its rejection code.
const (
	EventAccepted  = "accepted"
	EventDuplicate = "duplicate" // also counted as accepted
	EventConflict  = "conflict"  // also counted as duplicate
)

// uncounted is the prefix of the outcome of an accepted event that a meter could not count. The outcome ends
// with the rule that the value breaks. A strict tenant rejects the event, with the rule as the rejection code.
const uncounted = "uncounted:"

// EventUncounted returns the outcome of an accepted event that a meter could not count because of rule. The
// event is also counted as accepted.
func EventUncounted(rule metering.Verdict) string { return uncounted + string(rule) }

// UncountedRule returns the rule of an outcome made by EventUncounted.
func (c EventCount) UncountedRule() (rule string, is bool) {
	return strings.CutPrefix(c.Outcome, uncounted)
}

// EventCount is the number of events of a tenant in one hour that had an outcome.
type EventCount struct {
	Hour    time.Time // start of the hour
	Outcome string
	Events  int64
}

// Within returns the counts of the hours that begin in a range, in order of time.
func (c EventCounts) Within(ctx context.Context, tenant metering.TenantID, r metering.Range) ([]EventCount, error) {
	rows, err := c.pool.Query(ctx, `
		select hour, outcome, events from event_counts
		where tenant_id = $1 and hour >= $2 and hour < $3
		order by hour, outcome`, tenant, r.Start, r.End)
	if err != nil {
		return nil, pg.Coded(err)
	}
	counts, err := pgx.CollectRows(rows, pgx.RowToStructByPos[EventCount])
	return counts, pg.Coded(err)
}

// Sweep deletes up to limit counts of hours before the instant, of any tenant.
func (c EventCounts) Sweep(ctx context.Context, before time.Time, limit int) (deleted int64, err error) {
	return pg.OldRows{Table: "event_counts", Key: "tenant_id, hour, outcome", By: "hour", Noun: "counts of events"}.Sweep(ctx, c.pool, before, limit)
}

// add adds counts to the stored counts. It locks rows in the order of their keys, so that two processes do not
// deadlock.
func (c EventCounts) add(ctx context.Context, counted map[countedOutcome]int64) error {
	var tenants, events []int64
	var hours []time.Time
	var outcomes []string
	for of, n := range counted {
		tenants, hours, outcomes, events = append(tenants, int64(of.tenant)), append(hours, of.hour), append(outcomes, of.outcome), append(events, n)
	}
	_, err := c.pool.Exec(ctx, `
		insert into event_counts as c (tenant_id, hour, outcome, events)
		select * from unnest($1::bigint[], $2::timestamptz[], $3::text[], $4::bigint[]) as counted (tenant_id, hour, outcome, events)
		order by tenant_id, hour, outcome collate "C"
		on conflict (tenant_id, hour, outcome) do update set events = c.events + excluded.events`, tenants, hours, outcomes, events)
	if err != nil {
		return fmt.Errorf("count events: %w", pg.Coded(err))
	}
	return nil
}

// EventCounter counts outcomes in memory, so that counting an event needs no query. It writes the counts to
// EventCounts every few seconds.
type EventCounter struct {
	counts  EventCounts
	flusher *pg.Repeater

	writing sync.Mutex // serializes Flush

	mu      sync.Mutex
	counted map[countedOutcome]int64
}

type countedOutcome struct {
	tenant  metering.TenantID
	hour    time.Time
	outcome string
}

// NewEventCounter starts an EventCounter. If a write fails, the counter calls failed with the error, and writes
// the counts with the next write.
func (s Stores) NewEventCounter(failed func(error)) *EventCounter {
	c := &EventCounter{counts: s.EventCounts, counted: make(map[countedOutcome]int64)}
	c.flusher = s.pool.StartFlusher(c.Flush, failed)
	return c
}

// Count adds events with an outcome to the tenant's hour.
func (c *EventCounter) Count(tenant metering.TenantID, hour time.Time, outcome string, events int) {
	if events == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counted[countedOutcome{tenant, hour, outcome}] += int64(events)
}

// Flush stores the counts that no write has stored yet. It waits for a write in progress, so all earlier counts are
// stored when it returns nil.
func (c *EventCounter) Flush(ctx context.Context) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	counted := c.counted
	c.counted = make(map[countedOutcome]int64)
	c.mu.Unlock()
	if len(counted) == 0 {
		return nil
	}
	err := c.counts.add(ctx, counted)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		for of, n := range counted {
			c.counted[of] += n
		}
	}
	return err
}

// Close writes the remaining counts and stops the writer.
func (c *EventCounter) Close() { c.flusher.Close() }
