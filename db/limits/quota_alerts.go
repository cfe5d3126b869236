package limits

import (
	"time"

	"github.com/odometer-metering/odometer/db/catalog"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

func isQuotaAlert(a metering.Alert) bool { return a.Type == metering.QuotaAlert }

// quotas records the thresholds of quota alerts that customers have reached in the current and earlier
// windows of quotas. It skips a window that ended before the alert was created or changed.
func (v *alertReader) quotas(b ledger.PeriodFacts) {
	for _, l := range v.levels {
		f, known := b.Facts[int64(l.customer)]
		if !known {
			continue
		}
		for _, a := range v.applying(f, lastInstant(l.Window, v.now), isQuotaAlert) {
			if a.ReadsQuota(l.Quota) && l.Window.End.After(a.ChangedAt) {
				v.reach(a, metering.Firing{CustomerID: l.customer, QuotaID: l.ID, Period: l.Window, Value: l.Percent()})
			}
		}
	}
}

// lastInstant returns the last instant of a window, or now if that is earlier.
func lastInstant(window metering.Range, now time.Time) time.Time {
	if last := window.End.Add(-time.Microsecond); last.Before(now) {
		return last
	}
	return now
}

// queueQuotaAlerts is the SQL that queues @customer for evaluation if a quota alert may apply to the customer.
var queueQuotaAlerts = `
	insert into alert_due (tenant_id, customer_id)
	select @tenant::bigint, @customer::bigint
	where ` + catalog.MayWatch("@customer", "a.enabled and a.type = 'quota'")
