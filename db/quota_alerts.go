package db

import (
	"time"

	"github.com/odometer-metering/odometer/metering"
)

func ofQuotas(a metering.Alert) bool { return a.Type == metering.QuotaAlert }

// quotas notes the thresholds of quota alerts that customers have reached in the present windows of
// quotas, and in the previous ones. A window that ended before the alert was created or changed is
// not compared.
func (v *alertReader) quotas(b *openBatch) {
	for _, l := range v.levels {
		f, known := b.facts[int64(l.customer)]
		if !known {
			continue
		}
		for _, a := range v.applying(f, lastInstant(l.Window, v.now), ofQuotas) {
			if a.ReadsQuota(l.Quota) && l.Window.End.After(a.ChangedAt) {
				v.reachQuota(a, l)
			}
		}
	}
}

// lastInstant returns the last instant of a window that is not after now.
func lastInstant(window metering.Range, now time.Time) time.Time {
	if last := window.End.Add(-time.Microsecond); last.Before(now) {
		return last
	}
	return now
}

// reachQuota notes the thresholds of the alert that the level of a quota has reached.
func (v *alertReader) reachQuota(a metering.Alert, l customerLevel) {
	percent := l.Percent()
	for _, threshold := range a.Reached(percent) {
		v.firings = append(v.firings, metering.Firing{
			AlertID: a.ID, CustomerID: l.customer, Threshold: threshold, QuotaID: l.ID,
			Period: l.Window, Value: percent, Late: !l.Window.End.After(v.now), At: v.now,
		})
	}
}

// queueQuotaAlerts queues customer $2 of tenant $1 if a quota alert may apply to it, as SQL.
const queueQuotaAlerts = `
	insert into alert_due (tenant_id, customer_id)
	select $1::bigint, $2::bigint
	where exists (
	  select
	  from alerts a
	  where a.tenant_id = $1
	    and a.enabled
	    and a.type = 'quota'
	    and (a.customer_id is null or a.customer_id = $2)
	    and (a.plan_id is null or exists (
	      select
	      from customer_plans h
	      where h.tenant_id = $1
	        and h.customer_id = $2
	        and h.plan_id = a.plan_id)))`
