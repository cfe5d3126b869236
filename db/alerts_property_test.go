package db_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/db/outbox"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// alertModel computes the values that alerts compare, without SQL. Its billing periods are months of
// UTC, and its customers were created before the first event.
type alertModel struct {
	*watcher
	rt        *rapid.T
	customers []metering.Customer
	plan      metering.Plan
	onPlan    map[metering.CustomerID]time.Time // effective_from of the assignment
	meters    []metering.Meter                  // the first one has groups
	events    []modelEvent
	prices    map[metering.MeterID][]billing.Price // in the order of effective_from
	alerts    []metering.Alert
	quotas    []modelQuota
	began     metering.Range // the first period
	fired     map[string]bool
	usedFrom  map[metering.CustomerID]time.Time // the hour of the earliest event since the last evaluation
}

// modelQuota is a quota of a customer, or of the plan if customer is 0.
type modelQuota struct {
	id       metering.QuotaID
	customer metering.CustomerID
	meter    metering.MeterID
	grouped  bool
	limit    metering.Decimal
	period   metering.QuotaPeriod
	since    time.Time
}

type modelEvent struct {
	customer metering.CustomerID
	meter    metering.MeterID
	model    string
	at       time.Time
	value    metering.Decimal
}

func newAlertModel(t testing.TB, rt *rapid.T) *alertModel {
	m := &alertModel{
		watcher: newWatcher(t), rt: rt, onPlan: make(map[metering.CustomerID]time.Time),
		prices: make(map[metering.MeterID][]billing.Price), fired: make(map[string]bool), usedFrom: make(map[metering.CustomerID]time.Time),
	}
	m.now = m.now.AddDate(0, 0, -70)
	m.customers = []metering.Customer{m.customer, dbtest.Customer(t, m.store, m.tenant, "bolt"), dbtest.Customer(t, m.store, m.tenant, "crux")}
	created := m.now.AddDate(0, 0, -31)
	m.began = billing.CalendarPeriod(created, time.UTC)
	for _, c := range m.customers {
		m.exec(`update customers set created_at = $3 where tenant_id = $1 and id = $2`, m.tenant, c.ID, created)
	}
	m.meters = []metering.Meter{dbtest.Meter(t, m.store, m.tenant, "tokens", "token", "model"), dbtest.Meter(t, m.store, m.tenant, "calls", "call")}
	var err error
	m.plan, err = m.store.Plans.Create(t.Context(), m.tenant, metering.Operator, metering.Plan{Slug: "pro", Name: "Pro"})
	require.NoError(t, err)
	return m
}

func oneOf[T any](m *alertModel, name string, of []T) T {
	return rapid.SampledFrom(of).Draw(m.rt, name)
}

func (m *alertModel) below(n int, name string) int { return rapid.IntRange(0, n-1).Draw(m.rt, name) }

func (m *alertModel) decimal(below int) metering.Decimal {
	return metering.MustDecimal(fmt.Sprintf("%d.%02d", m.below(below, "units"), m.below(100, "hundredths")))
}

func (m *alertModel) sendSome() {
	for range 1 + m.below(6, "events") {
		m.send()
	}
}

func (m *alertModel) wait() { m.now = m.now.Add(time.Duration(m.below(36, "hours")) * time.Hour) }

// send ingests an event of the last ten days, which may be in the previous period.
func (m *alertModel) send() {
	m.ingest(modelEvent{
		customer: oneOf(m, "customer", m.customers).ID, meter: oneOf(m, "meter", m.meters).ID, model: oneOf(m, "model", []string{"a", "b"}),
		at: m.now.Add(-time.Duration(m.below(240, "hours ago")) * time.Hour), value: m.decimal(10),
	})
}

func (m *alertModel) ingest(e modelEvent) {
	kind := map[metering.MeterID]string{m.meters[0].ID: "token", m.meters[1].ID: "call"}[e.meter]
	var externalID string
	for _, c := range m.customers {
		if c.ID == e.customer {
			externalID = c.ExternalID
		}
	}
	sent := dbtest.Event(m, kind, externalID, e.at, e.value.String(), "", `{"model":"`+e.model+`"}`)
	_, err := m.writer.Ingest(m.Context(), m.tenant, []metering.Event{sent})
	require.NoError(m, err)
	m.events = append(m.events, e)
	hour := e.at.Truncate(time.Hour)
	if from, used := m.usedFrom[e.customer]; !used || hour.Before(from) {
		m.usedFrom[e.customer] = hour
	}
}

func (m *alertModel) setPrice() {
	meter := oneOf(m, "meter", m.meters).ID
	p := billing.Price{MeterID: meter, Terms: billing.Terms{BasePrice: m.decimal(3), IncludedUnits: m.decimal(20), OverageRate: m.decimal(3), Currency: "USD"}}
	if len(m.prices[meter]) > 0 {
		p.EffectiveFrom = m.now
	}
	dbtest.Price(m, m.store, m.tenant, p)
	m.prices[meter] = append(m.prices[meter], p)
}

func (m *alertModel) assign() {
	customer := oneOf(m, "customer", m.customers).ID
	if _, assigned := m.onPlan[customer]; assigned {
		return
	}
	m.onPlan[customer] = billing.CalendarPeriod(m.now, time.UTC).Start
	require.NoError(m, m.store.Plans.Assign(m.Context(), m.tenant, metering.Operator, customer, billing.Assignment{PlanID: m.plan.ID, EffectiveFrom: m.onPlan[customer]}))
}

func (m *alertModel) create() {
	a := metering.Alert{Name: fmt.Sprint(len(m.alerts)), Type: metering.UsageAlert, MeterID: oneOf(m, "meter", m.meters).ID, Thresholds: []metering.Decimal{m.decimal(60), m.decimal(60)}}
	switch m.below(3, "scope") {
	case 0:
		a.CustomerID = oneOf(m, "customer", m.customers).ID
	case 1:
		a.PlanID = m.plan.ID
	}
	switch m.below(6, "type") {
	case 0:
		a.Type, a.Currency = metering.SpendAlert, "USD"
	case 1:
		a.Type, a.Currency, a.MeterID = metering.SpendAlert, "USD", 0
	case 2:
		if a.MeterID == m.meters[0].ID {
			a.Group = groupOfModel(m, m.meters[0], "a")
		}
	case 3:
		a.Type, a.MeterID = metering.QuotaAlert, 0
	case 4:
		if a.Type = metering.QuotaAlert; a.MeterID == m.meters[0].ID {
			a.Group = groupOfModel(m, m.meters[0], "a")
		}
	}
	if a.Thresholds[0].Equal(a.Thresholds[1]) || a.Thresholds[0].IsZero() || a.Thresholds[1].IsZero() {
		return
	}
	m.alerts = append(m.alerts, m.alert(a))
}

// setQuota sets a quota, unless there is one of the same customer or plan, meter, group and period.
func (m *alertModel) setQuota() {
	meter := oneOf(m, "meter", m.meters)
	period := oneOf(m, "period", []metering.QuotaPeriod{metering.PerBilling, metering.PerMonth, metering.PerDay, metering.PerHour, metering.PerLifetime})
	q := metering.Quota{Meter: meter, Limit: new(m.decimal(40)), Mode: metering.SoftQuota, Period: period}
	if q.PlanID = m.plan.ID; m.below(2, "of a customer") == 0 {
		q.CustomerID, q.PlanID = oneOf(m, "customer", m.customers).ID, 0
	}
	if meter.ID == m.meters[0].ID && m.below(2, "of a group") == 0 {
		q.Group = groupOfModel(m, meter, "a")
	}
	model := modelQuota{customer: q.CustomerID, meter: meter.ID, grouped: q.Group != nil, limit: *q.Limit, period: period, since: metering.Instant(m.now)}
	if slices.ContainsFunc(m.quotas, func(other modelQuota) bool { return other.customer == q.CustomerID && other.isSame(model) }) {
		return
	}
	set, err := m.store.Quotas.Set(m.Context(), m.tenant, metering.Operator, q, m.now)
	require.NoError(m, err)
	model.id = set.ID
	m.quotas = append(m.quotas, model)
}

// isSame reports whether two quotas have the same meter, grouping and period. A customer's quota then replaces the
// plan's quota.
func (q modelQuota) isSame(other modelQuota) bool {
	return q.meter == other.meter && q.grouped == other.grouped && q.period == other.period
}

func (q modelQuota) window(at time.Time) metering.Range {
	return q.period.Window(at, time.UTC, billing.CalendarPeriod(at, time.UTC))
}

// quotasOf returns the customer's quotas that the alert compares at an instant.
func (m *alertModel) quotasOf(a metering.Alert, c metering.CustomerID, at time.Time) (quotas []modelQuota) {
	onPlan, assigned := m.onPlan[c]
	hasPlan := assigned && !at.Before(onPlan)
	if a.CustomerID != 0 && a.CustomerID != c || a.PlanID != 0 && !hasPlan {
		return nil
	}
	for _, q := range m.quotas {
		applies := q.customer == c || q.customer == 0 && hasPlan && !slices.ContainsFunc(m.quotas, func(own modelQuota) bool { return own.customer == c && own.isSame(q) })
		if applies && (a.MeterID == 0 || a.MeterID == q.meter) && (a.Group == nil || q.grouped) {
			quotas = append(quotas, q)
		}
	}
	return quotas
}

// recountQuotas adds to fired the quota thresholds that must fire. It checks the current window, the previous one, and
// all windows since the earliest event that is not evaluated.
func (m *alertModel) recountQuotas(a metering.Alert, c metering.Customer) {
	note := func(q modelQuota, window metering.Range) {
		for _, threshold := range a.Thresholds {
			if m.isReached(q, c.ID, window, threshold) {
				m.fired[fmt.Sprint(a.Name, " ", c.ExternalID, " ", threshold, " ", window.Start.UTC(), " ", q.id)] = true
			}
		}
	}
	for _, q := range m.quotasOf(a, c.ID, m.now) {
		note(q, q.window(m.now))
	}
	from, used := m.usedFrom[c.ID]
	for _, q := range m.quotas {
		later := q.window(m.now)
		for n := 0; q.period != metering.PerLifetime && (n == 0 || n < 100 && used && from.Before(later.Start)); n++ {
			last := later.Start.Add(-time.Microsecond)
			later = q.window(last)
			if slices.Contains(m.quotasOf(a, c.ID, last), q) && later.End.After(q.since) && later.End.After(a.CreatedAt) {
				note(q, later)
			}
		}
	}
}

// isReached compares the share of a quota with a threshold in percent, without a division.
func (m *alertModel) isReached(q modelQuota, customer metering.CustomerID, window metering.Range, threshold metering.Decimal) bool {
	used := m.units(customer, q.meter, window, q.grouped)
	if q.limit.IsZero() {
		return !used.IsZero() && threshold.Cmp(metering.Whole(100)) <= 0
	}
	return used.Mul(metering.Whole(100)).Cmp(threshold.Mul(q.limit)) >= 0
}

// dryRunQuotas returns the firings that a dry run of a quota alert must list for a customer.
func (m *alertModel) dryRunQuotas(a metering.Alert, c metering.Customer, since time.Time) (days []string) {
	for _, q := range m.quotasOf(a, c.ID, m.now) {
		for w := q.window(since); !w.Start.After(m.now); w = q.window(w.End) {
			for _, threshold := range a.Thresholds {
				began := since.Truncate(24 * time.Hour)
				if w.Start.After(began) {
					began = w.Start.Truncate(24 * time.Hour)
				}
				before := w
				before.End = began
				if w.Start.Before(began) && m.isReached(q, c.ID, before, threshold) {
					continue
				}
				for day := began; day.Before(w.End) && !day.After(m.now); day = day.AddDate(0, 0, 1) {
					until := w.Intersect(metering.Range{Start: w.Start, End: day.AddDate(0, 0, 1)})
					if m.isReached(q, c.ID, until, threshold) {
						days = append(days, fmt.Sprint(c.ExternalID, " ", w.Start.UTC(), " ", day.UTC(), " ", threshold, " ", q.id))
						break
					}
				}
			}
			if q.period == metering.PerLifetime {
				break
			}
		}
	}
	return days
}

// recount adds to fired the thresholds that must fire once all events so far are evaluated.
func (m *alertModel) recount() {
	for _, a := range m.alerts {
		for _, c := range m.customers {
			if a.Type == metering.QuotaAlert {
				m.recountQuotas(a, c)
				continue
			}
			for p := m.began; !p.Start.After(m.now); p = billing.CalendarPeriod(p.End, time.UTC) {
				if a.CustomerID != 0 && a.CustomerID != c.ID || a.PlanID != 0 && !m.hasPlan(c.ID, p) {
					continue
				}
				value := m.value(a, c.ID, p)
				for _, threshold := range a.Thresholds {
					if key := fmt.Sprint(a.Name, " ", c.ExternalID, " ", threshold, " ", p.Start.UTC(), " ", metering.QuotaID(0)); value.Cmp(threshold) >= 0 {
						m.fired[key] = true
					}
				}
			}
		}
	}
	clear(m.usedFrom)
}

// dryRun returns the firings that a dry run of the alert must list.
func (m *alertModel) dryRun(a metering.Alert) (days []string) {
	since := m.now.AddDate(0, 0, -30)
	for _, c := range m.customers {
		if a.Type == metering.QuotaAlert {
			days = append(days, m.dryRunQuotas(a, c, since)...)
			continue
		}
		for p := m.began; !p.Start.After(m.now); p = billing.CalendarPeriod(p.End, time.UTC) {
			if a.CustomerID != 0 && a.CustomerID != c.ID || a.PlanID != 0 && !m.hasPlan(c.ID, p) || !p.End.After(since) {
				continue
			}
			for _, threshold := range a.Thresholds {
				for day := p.Start; day.Before(p.End) && !day.After(m.now); day = day.AddDate(0, 0, 1) {
					value := m.valueUntil(a, c.ID, p, day.AddDate(0, 0, 1))
					if value.Cmp(threshold) < 0 {
						continue
					}
					if day.AddDate(0, 0, 1).After(since) {
						days = append(days, fmt.Sprint(c.ExternalID, " ", p.Start.UTC(), " ", day.UTC(), " ", threshold, " ", metering.QuotaID(0), " ", value))
					}
					break
				}
			}
		}
	}
	return days
}

// valueUntil returns the value of the events before an instant.
func (m *alertModel) valueUntil(a metering.Alert, customer metering.CustomerID, p metering.Range, until time.Time) metering.Decimal {
	all := m.events
	defer func() { m.events = all }()
	m.events = nil
	for _, e := range all {
		if e.at.Before(until) {
			m.events = append(m.events, e)
		}
	}
	return m.value(a, customer, p)
}

func (m *alertModel) hasPlan(customer metering.CustomerID, p metering.Range) bool {
	since, assigned := m.onPlan[customer]
	return assigned && !p.Start.Before(since)
}

func (m *alertModel) value(a metering.Alert, customer metering.CustomerID, p metering.Range) (value metering.Decimal) {
	if a.Type == metering.UsageAlert {
		return m.units(customer, a.MeterID, p, a.Group != nil)
	}
	for _, meter := range m.meters {
		if a.MeterID != 0 && a.MeterID != meter.ID {
			continue
		}
		for i := len(m.prices[meter.ID]) - 1; i >= 0; i-- {
			if price := m.prices[meter.ID][i]; !price.EffectiveFrom.After(p.Start) {
				value = value.Add(charge(price.Terms, m.units(customer, meter.ID, p, false)))
				break
			}
		}
	}
	return value
}

func charge(terms billing.Terms, units metering.Decimal) metering.Decimal {
	total := terms.BasePrice
	if over := units.Sub(terms.IncludedUnits); !over.IsNegative() {
		total = total.Add(over.Mul(terms.OverageRate))
	}
	return total.Round(2)
}

func (m *alertModel) units(customer metering.CustomerID, meter metering.MeterID, p metering.Range, ofGroup bool) (units metering.Decimal) {
	for _, e := range m.events {
		if e.customer == customer && e.meter == meter && p.Contains(e.at) && (!ofGroup || e.model == "a") {
			units = units.Add(e.value)
		}
	}
	return units
}

// quotaOf returns the quota id of a message, or the id of quota 0 if the message has none.
func quotaOf(m outbox.AlertTriggered) string {
	if m.QuotaID == nil {
		return metering.QuotaID(0).String()
	}
	return *m.QuotaID
}

// requireFirings evaluates the alerts, and requires one alert.triggered message for each firing of the model.
func (m *alertModel) requireFirings() {
	m.evaluate()
	m.recount()
	got := make(map[string]bool)
	for _, f := range m.triggered() {
		require.Equal(m, f.Period.End.Compare(f.OccurredAt) <= 0, f.Late)
		key := fmt.Sprint(f.Alert.Name, " ", f.CustomerExternalID, " ", f.Threshold, " ", f.Period.Start, " ", quotaOf(f))
		require.GreaterOrEqual(m, f.Value.Cmp(f.Threshold), 0, key)
		require.False(m, got[key], "%s is notified twice", key)
		got[key] = true
	}
	require.Equal(m, m.fired, got)
}

// requireDryRuns requires that the dry run of each alert lists the firings that the model computes. It returns the
// number of firings.
func (m *alertModel) requireDryRuns() (days int) {
	for _, a := range m.alerts {
		run, err := m.store.Evaluations.DryRun(m.Context(), m.tenant, a, m.now)
		require.NoError(m, err)
		require.False(m, run.More)
		var got []string
		for _, f := range run.Firings {
			day := fmt.Sprint(f.ExternalID, " ", f.Period.Start.UTC(), " ", f.Day.UTC(), " ", f.Threshold, " ", f.QuotaID)
			if require.GreaterOrEqual(m, f.Value.Cmp(f.Threshold), 0, day); f.QuotaID == 0 {
				day += fmt.Sprint(" ", f.Value)
			}
			got = append(got, day)
		}
		require.ElementsMatch(m, m.dryRun(a), got)
		requireHighest(m, a, run)
		days += len(got)
	}
	return days
}

// requireHighest requires that no firing has a value above the highest value of run.Highest. Firings of the same
// customer and quota must be on a day of run.Highest with at least their value.
func requireHighest(t require.TestingT, a metering.Alert, run limits.DryRun) {
	if a.Type == metering.SilenceAlert || run.Highest == nil {
		require.Nil(t, run.Highest)
		require.True(t, a.Type == metering.SilenceAlert || len(run.Firings) == 0)
		return
	}
	var highest metering.Decimal
	values := make(map[time.Time]metering.Decimal)
	for n, d := range run.Highest.Days {
		require.True(t, n == 0 || run.Highest.Days[n-1].Day.Before(d.Day), "ascending")
		if values[d.Day] = d.Value; d.Value.Cmp(highest) > 0 {
			highest = d.Value
		}
	}
	for _, f := range run.Firings {
		require.LessOrEqual(t, f.Value.Cmp(highest), 0)
		if f.CustomerID == run.Highest.CustomerID && f.QuotaID == run.Highest.QuotaID {
			require.GreaterOrEqual(t, values[f.Day].Cmp(f.Value), 0, "on %s", f.Day)
		}
	}
}

// TestPropertyFiringsAreThoseOfARecount compares dry runs and messages with the model after random events, prices,
// plans, alerts and evaluations. Each history ends with an alert that fires.
func TestPropertyFiringsAreThoseOfARecount(t *testing.T) {
	t.Parallel()
	histories.Check(t, func(rt *rapid.T) {
		m := newAlertModel(t, rt)
		do := func(step func()) func(*rapid.T) { return func(*rapid.T) { step() } }
		rt.Repeat(map[string]func(*rapid.T){
			"send": do(m.sendSome), "send more": do(m.sendSome), "wait": do(m.wait), "price": do(m.setPrice), "assign": do(m.assign), "quota": do(m.setQuota),
			"alert": do(m.create), "evaluate": do(m.requireFirings),
		})
		m.alerts = append(m.alerts, m.alert(metering.Alert{Name: "last", Type: metering.UsageAlert, MeterID: m.meters[1].ID, Thresholds: []metering.Decimal{metering.Whole(1)}}))
		m.ingest(modelEvent{customer: m.customers[0].ID, meter: m.meters[1].ID, model: "a", at: m.now, value: metering.Whole(2)})
		m.requireFirings()
		require.NotEmpty(rt, m.fired)
		require.Positive(rt, m.requireDryRuns(), "days on which an alert fires")
	})
}
