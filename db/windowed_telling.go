package db

import (
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/metering"
)

// tellWindows makes an entry for each of the provider's windows that changed.
// What a window is told is the difference of two rounded totals, so that the
// windows add up to the period's.
func (m *meterTelling) tellWindows() error {
	busy, err := m.busyHours()
	if err != nil {
		return err
	}
	var total metering.Decimal
	var former line
	for _, w := range windowsOf(m.period.Range, m.part, m.item.Window, m.now) {
		if slices.ContainsFunc(busy, func(hour time.Time) bool { return hour.Before(w.usage.End) && hour.Add(time.Hour).After(w.usage.Start) }) {
			usage, err := m.usage(w.usage)
			if err != nil {
				return err
			}
			total = total.Add(usage)
		}
		upTo := m.line(total)
		if !upTo.value.IsZero() {
			upTo.amount = upTo.charge.Sub(m.amount)
		}
		told := upTo
		told.value, told.amount = upTo.value.Sub(former.value), upTo.amount.Sub(former.amount)
		if err := m.tellOne(told, w.place); err != nil {
			return err
		}
		former = upTo
	}
	m.open = m.open || !former.value.Equal(m.value(m.total.Usage)) // the rest is for windows that have not begun
	return nil
}

// busyHours are the starts of the hours of the period in which there is usage.
func (m *meterTelling) busyHours() ([]time.Time, error) {
	rows, err := m.tx.Query(m.ctx, `
		select distinct hour
		from usage_hourly
		where tenant_id = $1
		  and customer_id = $2
		  and meter_version_id = $3
		  and hour > $4::timestamptz - interval '1 hour'
		  and hour < $5`, m.tenant, m.payer.id, m.total.Meter.Version.ID, m.period.Start, m.period.End)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[time.Time])
}

func (m *meterTelling) usage(r metering.Range) (metering.Decimal, error) {
	totals, err := Usage{m.tx}.MeterTotals(m.ctx, m.tenant, m.payer.id, r)
	for _, t := range totals {
		if t.Meter.ID == m.total.Meter.ID {
			return t.Usage, err
		}
	}
	return metering.Decimal{}, err
}

// window is one of the provider's, and the usage that goes into it.
type window struct{ place, usage metering.Range }

// windowsOf are the provider's windows of UTC that end in the part of the
// period, as far as they have begun. One that the part's end cuts would be
// billed with the next period, so its usage goes into the one before it.
func windowsOf(period, part metering.Range, g metering.Granularity, now time.Time) []window {
	width := time.Hour
	if g == metering.Day {
		width = 24 * time.Hour
	}
	var windows []window
	begin, from := part.Start, period.Start
	for end := part.Start.Truncate(width).Add(width); !end.After(part.End) && !begin.After(now); end = end.Add(width) {
		if end.Sub(begin) < leastWindow {
			continue
		}
		windows = append(windows, window{metering.Range{Start: begin, End: end}, metering.Range{Start: from, End: end}})
		begin, from = end, end
	}
	if len(windows) == 0 {
		return []window{{part, period}}
	}
	if last := &windows[len(windows)-1]; last.place.End.Add(width).After(part.End) {
		last.usage.End = period.End
	}
	return windows
}

// leastWindow holds a whole minute, which a timestamp has to lie in.
const leastWindow = 2 * time.Minute
