package usage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// WindowsOfEvents returns the windows that Events.List reads, in order, if no event matches the filter.
func WindowsOfEvents(f EventFilter, now time.Time) (windows []metering.Range) {
	for w := f.firstWindow(nil, now); ; w = f.nextWindow(w) {
		windows = append(windows, metering.Range{Start: w.from, End: w.before.At})
		if !w.from.After(f.Start) {
			return windows
		}
	}
}

// PlanOfEvents returns the query plan of a window of Events.List. The plan contains the chunks and indexes that
// the query reads.
func PlanOfEvents(ctx context.Context, s Events, tenant metering.TenantID, f EventFilter, window metering.Range) (lines []string, err error) {
	w := eventWindow{from: window.Start, before: EventCursor{At: window.End}}
	rows, err := s.pool.Query(ctx, `explain (costs off) `+selectEvents(f), f.arguments(tenant, w, 51))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
