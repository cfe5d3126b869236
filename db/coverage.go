package db

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// coverage is what a snapshot of a period took into account. It tells cheaply
// whether there may be something new to say: the totals decide.
type coverage struct {
	events  int64
	catalog string
}

// countedEvents is the number of a customer's events in the months that a
// period p touches, and of the late ones of every month, as of the meter versions
// that billing uses.
const countedEvents = `(
	select coalesce(sum(case when u.month < p.ends_at and u.month > p.starts_at - interval '32 days'
	  then u.count + u.late_count else u.late_count end), 0)::bigint
	from usage_monthly u
	where u.tenant_id = p.tenant_id
	  and u.customer_id = p.customer_id
	  and u.meter_version_id in (select m.meter_version_id from meters m where m.tenant_id = p.tenant_id))`

func (b *bill) coverage(period metering.Period) (c coverage, err error) {
	if len(b.hold) > 0 {
		return c, nil // something is left untold
	}
	meters, err := collectMeters(b.ctx, b.tx, `order by m.id`, b.tenant)
	if err != nil {
		return c, err
	}
	c.catalog = catalogOf(b.account, b.mapping, b.payer.late, meters, b.prices, metering.ProductAt(b.payer.products, period.Start), period.Start)
	err = b.tx.QueryRow(b.ctx, `select `+countedEvents+` from billing_periods p where p.tenant_id = $1 and p.id = $2`,
		b.tenant, period.ID).Scan(&c.events)
	return c, err
}

// catalogOf is a hash of everything but usage that a period's charges depend on.
func catalogOf(account string, mapping map[string]string, late metering.LatePolicy, meters []metering.Meter, prices map[metering.MeterID][]metering.Price, product metering.ProductID, start time.Time) string {
	hash := sha256.New()
	_, _ = fmt.Fprintln(hash, account, mapping, late) // a hash never fails
	for _, m := range meters {
		price, _ := metering.PriceAt(prices[m.ID], product, start)
		_, _ = fmt.Fprintln(hash, m.ID, m.Version.ID, m.Version.Status, price.Version)
		if m.UsageScale > 0 { // in whole units the hash stays what it was before there were others
			_, _ = fmt.Fprintln(hash, "decimals", m.UsageScale)
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:16])
}

// cover notes that the provider knows everything that c counts.
func (b *bill) cover(period metering.Period, c coverage) error {
	_, err := b.tx.Exec(b.ctx, `
		update billing_periods
		set covered_events = $3, covered_catalog = $4
		where tenant_id = $1
		  and id = $2
		  and (covered_events, covered_catalog) is distinct from ($3, $4)`, b.tenant, period.ID, c.events, c.catalog)
	return err
}
