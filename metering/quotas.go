package metering

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Limits on quotas and reservations.
const (
	MaxQuotas        = 100                 // per customer, and per plan
	MaxReservations  = 10_000              // per customer at the same time
	ReservationsKept = 30 * 24 * time.Hour // time from the expiry of a reservation to its deletion; until then, it can still be settled
	maxReservationID = 128
)

// QuotaMode is the effect of an exhausted quota.
type QuotaMode string

const (
	SoftQuota QuotaMode = "soft" // usage beyond the limit is allowed and reported as exceeded
	HardQuota QuotaMode = "hard" // usage beyond the limit is not allowed
)

// Values returns all modes.
func (QuotaMode) Values() []QuotaMode {
	return []QuotaMode{SoftQuota, HardQuota}
}

// QuotaPeriod is the period after which the usage of a quota starts again from zero.
type QuotaPeriod string

const (
	PerBilling  QuotaPeriod = "billing" // the customer's billing period
	PerMonth    QuotaPeriod = "month"   // a calendar month in the meter's time zone; days and hours are also local
	PerDay      QuotaPeriod = "day"
	PerHour     QuotaPeriod = "hour"
	PerLifetime QuotaPeriod = "lifetime" // the usage never starts again
)

// Values returns all periods.
func (QuotaPeriod) Values() []QuotaPeriod {
	return []QuotaPeriod{PerBilling, PerMonth, PerDay, PerHour, PerLifetime}
}

// lifetime is the window of a PerLifetime quota. It contains every event, and is the same in every time zone,
// because notifications of a quota are identified by their window.
var lifetime = Range{Start: time.Date(1, 2, 1, 0, 0, 0, 0, time.UTC), End: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)}

// Window returns the window that contains now. zone is the meter's time zone, and billing the customer's
// billing period.
func (p QuotaPeriod) Window(now time.Time, zone *time.Location, billing Range) Range {
	switch p {
	case PerBilling:
		return billing
	case PerMonth:
		return WindowOf(now, Month, zone)
	case PerDay:
		return WindowOf(now, Day, zone)
	case PerHour:
		return WindowOf(now, Hour, zone)
	}
	return lifetime
}

// Quota limits the usage of a meter in each window of a period, for one customer or for each
// customer of a plan.
type Quota struct {
	ID         QuotaID
	CustomerID CustomerID // 0: the quota of a plan
	PlanID     PlanID     // 0: the quota of a customer
	Meter      Meter
	Group      *Group   // nil: all usage of the meter
	Limit      *Decimal // nil: unlimited
	Mode       QuotaMode
	Period     QuotaPeriod
	CreatedAt  time.Time
}

// Validate returns an error if a field that a client can set is not valid.
func (q Quota) Validate() error {
	if q.Limit != nil && q.Limit.IsNegative() {
		return Invalid("body.limit", "must be zero or more, or null for unlimited usage")
	}
	return nil
}

// Covers reports whether the quota limits usage of the meter in the group. A nil group is usage
// of an unknown group: only quotas without a group limit it.
func (q Quota) Covers(meter MeterID, group *Group) bool {
	return q.Meter.ID == meter && (q.Group == nil || group != nil && q.Group.ID == group.ID)
}

// QuotaGroup returns the group of a JSON object with exactly one value for each group_by property of the
// meter version. location identifies the object in the request, for errors.
func (g MeterVersion) QuotaGroup(location string, object json.RawMessage) (Group, error) {
	if len(g.GroupBy) == 0 {
		return Group{}, Invalid(location, "must be omitted, because the meter has no group_by")
	}
	if rule := jsonRule(object); rule != "" {
		return Group{}, Invalid(location, "%s", rule)
	}
	var values map[string]json.RawMessage
	if err := json.Unmarshal(object, &values); err != nil || values == nil {
		return Group{}, Invalid(location, "must be an object with a value for each group_by property of the meter")
	}
	for _, name := range g.GroupBy {
		if _, has := values[name]; !has {
			return Group{}, Invalid(location, "must have a value for each group_by property of the meter; null is the value of events without the property")
		}
	}
	if len(values) > len(g.GroupBy) {
		return Group{}, Invalid(location, "must have only the group_by properties of the meter")
	}
	group, err := g.GroupOf(object)
	if err != nil {
		return Group{}, Invalid(location, "must be an object with a value for each group_by property of the meter").Because(err)
	}
	if len(group.Key) > MaxGroupKeyBytes {
		return Group{}, Invalid(location, "must be at most %d bytes as JSON: longer groups are counted in $other", MaxGroupKeyBytes)
	}
	return group, nil
}

// QuotaLevel is a quota with the usage of one customer in a window.
type QuotaLevel struct {
	Quota
	Window   Range
	Used     Decimal // the usage that is billed
	Reserved Decimal // by open reservations
}

// Counted returns the range of the usage that counts against the quota. For a lifetime quota, the range
// consists of whole months in the meter's time zone, because usage is stored by month.
func (l QuotaLevel) Counted() Range {
	if l.Period != PerLifetime {
		return l.Window
	}
	zone := Location(l.Meter.Version.Timezone)
	return Range{WindowOf(l.Window.Start, Month, zone).Start, WindowOf(l.Window.End, Month, zone).Start}
}

// Remaining returns the remaining amount, at least zero, or nil if the quota is unlimited.
func (l QuotaLevel) Remaining() *Decimal {
	if l.Limit == nil {
		return nil
	}
	left := l.Limit.Sub(l.Used).Sub(l.Reserved)
	if left.IsNegative() {
		left = Decimal{}
	}
	return &left
}

// ResetsAt returns the time at which the quota starts again from zero, or nil if it never does.
func (l QuotaLevel) ResetsAt() *time.Time {
	if l.Period == PerLifetime {
		return nil
	}
	return &l.Window.End
}

// Percent returns the used or reserved share of the limit in percent. It is rounded down to the decimals
// that a threshold can have, so it reaches the same thresholds as the exact share. A limit of 0 is at 100 %
// as soon as anything is used or reserved.
func (l QuotaLevel) Percent() Decimal {
	taken := l.Used.Add(l.Reserved)
	switch {
	case !l.Limit.IsZero():
		return taken.percentDown(*l.Limit, percentDecimals)
	case taken.IsZero() || taken.IsNegative():
		return Decimal{}
	}
	return Whole(100)
}

// QuotaNeed is an amount that the caller wants to use of a quota.
type QuotaNeed struct {
	QuotaLevel
	Amount Decimal
}

// exceeds reports whether the amount exceeds the quota, together with the used and reserved amounts.
func (n QuotaNeed) exceeds() bool {
	return n.Limit != nil && n.Used.Add(n.Reserved).Add(n.Amount).Cmp(*n.Limit) > 0
}

// QuotaDecision is the result of DecideQuota.
type QuotaDecision struct {
	Allowed  bool // no hard quota is exceeded
	Exceeded bool // a quota is exceeded, hard or soft
	// Tightest is the quota with the smallest remaining amount, among the exceeded hard quotas if there are any,
	// otherwise among all quotas. It is nil if there is no quota.
	Tightest *QuotaLevel
}

// DecideQuota decides whether all quotas allow the amounts needed of them.
func DecideQuota(needs []QuotaNeed) QuotaDecision {
	d := QuotaDecision{Allowed: true}
	var refusing []QuotaNeed
	for _, n := range needs {
		if !n.exceeds() {
			continue
		}
		if d.Exceeded = true; n.Mode == HardQuota {
			d.Allowed, refusing = false, append(refusing, n)
		}
	}
	if !d.Allowed {
		needs = refusing
	}
	if len(needs) > 0 {
		d.Tightest = new(slices.MinFunc(needs, byRemaining).QuotaLevel)
	}
	return d
}

// byRemaining orders quotas by their remaining amount, the smallest first. Unlimited quotas are last.
func byRemaining(a, b QuotaNeed) int {
	left, right := a.Remaining(), b.Remaining()
	switch {
	case left == nil && right == nil:
		return cmp.Compare(a.ID, b.ID)
	case left == nil:
		return 1
	case right == nil:
		return -1
	}
	return cmp.Or(left.Cmp(*right), cmp.Compare(a.ID, b.ID))
}

var reservationID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:-]*$`)

// SettledKey returns the idempotency key of a settlement's event for which the client sent no key. index is
// the event's index in the settlement. The key contains the time of the grant, because a client can reuse a
// reservation's id after the reservation was deleted.
func SettledKey(reservation string, granted time.Time, index int) string {
	return fmt.Sprintf("reservation:%s:%d:%d", reservation, granted.UnixMicro(), index)
}

// ValidReservationID returns an error if a client's reservation id is not valid.
func ValidReservationID(at, id string) error {
	if len(id) > maxReservationID || !reservationID.MatchString(id) {
		return Invalid(at, "must be 1 to %d characters of A-Z, a-z, 0-9, '.', '_', ':' and '-', and begin with a letter or digit", maxReservationID)
	}
	return nil
}
