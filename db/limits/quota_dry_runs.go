package limits

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// quotaHistory is the usage of a customer's quota in the windows that overlap the last 30 days (dryRunDays).
type quotaHistory struct {
	customerLevel
	windows []metering.Range
	hours   []usage.RangeUsage // ordered by start; usage before the first day of the dry run is in longer ranges
}

// compareQuotas adds the days on which usage reached thresholds of the current quotas. It ignores
// reservations, because past reservations are not kept.
func (d *dryRunner) compareQuotas(read *levelRead, b ledger.PeriodFacts) error {
	began := metering.WindowOf(d.since, metering.Day, b.Timezone).Start
	histories, err := d.quotaHistories(read, b, began)
	if err != nil {
		return err
	}
	for _, h := range histories {
		d.compareWindows(b.Timezone, b.Facts[int64(h.customer)], h, began)
	}
	return nil
}

// quotaHistories returns the usage of the quotas that the alert reads, by hour from began, the start of the
// first day of the dry run.
func (d *dryRunner) quotaHistories(read *levelRead, b ledger.PeriodFacts, began time.Time) (histories []quotaHistory, err error) {
	quotas, err := read.quotas(b.Customers, nil)
	if err != nil {
		return nil, err
	}
	var meters []metering.Meter
	for _, l := range quotas {
		f := b.Facts[int64(l.customer)]
		if !d.alert().ReadsQuota(l.Quota) || l.Meter.Version.Status == metering.Backfilling || len(d.applying(f, d.now, isQuotaAlert)) == 0 {
			continue
		}
		h := quotaHistory{customerLevel: l, windows: d.windowsOf(read, l)}
		histories, meters = append(histories, h), append(meters, l.Meter)
	}
	if len(histories) == 0 {
		return nil, nil
	}
	return histories, d.readHistories(histories, meters, began)
}

// windowsOf returns the windows of a quota that overlap the last 30 days (dryRunDays).
func (d *dryRunner) windowsOf(read *levelRead, l customerLevel) (windows []metering.Range) {
	for at := d.since; !at.After(d.now); at = windows[len(windows)-1].End {
		windows = append(windows, read.window(l, at))
	}
	return windows
}

// rangesToRead returns the ranges of usage to read. Only windows of billing periods can end within an hour. All
// other windows are therefore read as one range.
func (h quotaHistory) rangesToRead() []metering.Range {
	if h.Period == metering.PerBilling {
		return h.windows
	}
	first, last := h.QuotaLevel, h.QuotaLevel
	first.Window, last.Window = h.windows[0], h.windows[len(h.windows)-1]
	return []metering.Range{{Start: first.Counted().Start, End: last.Counted().End}}
}

// readHistories sets the hours of histories.
func (d *dryRunner) readHistories(histories []quotaHistory, meters []metering.Meter, began time.Time) error {
	statement := usage.NewStatementOfSome(d.tenant, meters)
	var groups []*[16]byte
	for no, h := range histories {
		groups = append(groups, catalog.GroupID(h.Group))
		until := metering.WindowOf(d.now, metering.Hour, metering.Location(h.Meter.Version.Timezone)).End
		for _, span := range h.rangesToRead() {
			statement.AddMeter(no, span.Intersect(metering.Range{Start: span.Start, End: began}), []int64{int64(h.customer)}, h.Meter.Version, h.Group != nil, false)
			statement.AddMeter(no, span.Intersect(metering.Range{Start: began, End: until}), []int64{int64(h.customer)}, h.Meter.Version, h.Group != nil, true)
		}
	}
	counted, err := statement.Rows(d.ctx, d.tx)
	if err != nil {
		return err
	}
	statement.Args["range_groups"] = groups
	rows, err := d.tx.Query(d.ctx, `
		select no, start, `+usage.MergedTally+`
		from `+counted+`
		where `+inRangeGroup+`
		group by 1, 2
		order by 1, 2`, statement.Args)
	if err != nil {
		return fmt.Errorf("read usage of quotas: %w", err)
	}
	var no int
	var start time.Time
	var t usage.Tally
	_, err = pgx.ForEachRow(rows, append([]any{&no, &start}, t.Fields()...), func() error {
		h := &histories[no]
		h.hours = append(h.hours, usage.RangeUsage{Start: start, Usage: t.Total(h.Meter.Version.Aggregation)})
		return nil
	})
	return err
}

// compareWindows adds the days on which usage reached thresholds, for each window of a quota. If the first
// window began before the first day of the dry run, its usage until then is treated as that of one day.
func (d *dryRunner) compareWindows(zone *time.Location, f *billing.Facts, h quotaHistory, began time.Time) {
	hours := h.hours
	for _, w := range h.windows {
		level, reached := h.QuotaLevel, 0
		day := metering.Range{Start: w.Start, End: began}
		if day.Empty() {
			day = metering.WindowOf(w.Start, metering.Day, zone)
		}
		for ; day.Start.Before(w.End) && !day.Start.After(d.now); day = metering.WindowOf(day.End, metering.Day, zone) {
			for len(hours) > 0 && hours[0].Start.Before(day.End) && hours[0].Start.Before(w.End) {
				level.Used, hours = level.Used.Add(hours[0].Usage), hours[1:]
			}
			reached = d.reach(0, DryFiring{
				CustomerID: f.Customer.ID, ExternalID: f.Customer.ExternalID, Value: level.Percent(), QuotaID: level.ID, Period: w,
			}, day, reached)
		}
	}
}
