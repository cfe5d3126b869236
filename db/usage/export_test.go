package usage

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// WindowsOfEvents returns the windows that a search reads one after another if it finds no events.
func WindowsOfEvents(f EventFilter, now time.Time) (windows []metering.Range) {
	for w := f.firstWindow(nil, now); ; w = f.nextWindow(w) {
		windows = append(windows, metering.Range{Start: w.from, End: w.before.At})
		if !w.from.After(f.Start) {
			return windows
		}
	}
}

// PlanOfEvents returns the database's plan of the search of a window: the chunks that it reads, and the
// indexes.
func PlanOfEvents(ctx context.Context, s Events, tenant metering.TenantID, f EventFilter, window metering.Range) (lines []string, err error) {
	w := eventWindow{from: window.Start, before: EventCursor{At: window.End}}
	rows, err := s.pool.Query(ctx, `explain (costs off) `+selectEvents(f), f.arguments(tenant, w, 51))
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
