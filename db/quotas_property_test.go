package db_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// quotaModel is a model of quotas: it records all usage and reservations, in whole units.
type quotaModel struct {
	*limited

	now          time.Time
	quotas       map[string]modelledQuota // by period and model
	used         []modelledUse
	reservations map[string]*modelledReservation
	next         int
}

type modelledQuota struct {
	limit  int64
	hard   bool
	model  string // "" for all models
	period metering.QuotaPeriod
}

type modelledUse struct {
	at     time.Time
	model  string
	amount int64
}

type modelledReservation struct {
	modelledUse // at is the time of the grant

	expires time.Time
	ended   bool
	settled bool
}

var models = []string{"a", "b"}

// in reports whether an instant lies in the same window of the quota as now. All windows of these quotas are in UTC.
func (q modelledQuota) in(now, at time.Time) bool {
	switch q.period {
	case metering.PerHour:
		return now.Truncate(time.Hour).Equal(at.Truncate(time.Hour))
	case metering.PerDay:
		return now.Truncate(24 * time.Hour).Equal(at.Truncate(24 * time.Hour))
	}
	return true
}

// levels returns the used and the reserved amount of a quota at the model's time.
func (m *quotaModel) levels(q modelledQuota) (used, reserved int64) {
	for _, u := range m.used {
		if q.in(m.now, u.at) && (q.model == "" || q.model == u.model) {
			used += u.amount
		}
	}
	for _, r := range m.reservations {
		if q.in(m.now, r.at) && !r.ended && r.expires.After(m.now) && (q.model == "" || q.model == r.model) {
			reserved += r.amount
		}
	}
	return used, reserved
}

// allows returns the model's decision on an amount.
func (m *quotaModel) allows(model string, amount int64) (allowed, exceeded bool) {
	allowed = true
	for _, q := range m.quotas {
		if q.model != "" && q.model != model {
			continue
		}
		if used, reserved := m.levels(q); used+reserved+amount > q.limit {
			exceeded, allowed = true, allowed && !q.hard
		}
	}
	return allowed, exceeded
}

func (m *quotaModel) set(rt *rapid.T) {
	q := modelledQuota{
		limit: rapid.Int64Range(0, 40).Draw(rt, "limit"), hard: rapid.Bool().Draw(rt, "hard"), model: rapid.SampledFrom([]string{"", "a"}).Draw(rt, "model"),
		period: rapid.SampledFrom([]metering.QuotaPeriod{metering.PerHour, metering.PerDay, metering.PerLifetime}).Draw(rt, "period"),
	}
	mode := metering.SoftQuota
	if q.hard {
		mode = metering.HardQuota
	}
	m.quotas[string(q.period)+q.model] = q
	m.quota(fmt.Sprint(q.limit), mode, q.period, func(stored *metering.Quota) {
		if q.model != "" {
			ofModel(q.model)(stored)
		}
	})
}

func (m *quotaModel) ingest(rt *rapid.T) {
	u := m.draw(rt)
	u.at = m.now.Add(-time.Duration(rapid.IntRange(0, 30*60).Draw(rt, "seconds ago")) * time.Second)
	m.use(u.at, fmt.Sprint(u.amount), u.model)
	m.used = append(m.used, u)
}

func (m *quotaModel) draw(rt *rapid.T) modelledUse {
	return modelledUse{m.now, rapid.SampledFrom(models).Draw(rt, "model"), rapid.Int64Range(0, 15).Draw(rt, "amount")}
}

func (m *quotaModel) reserveSome(rt *rapid.T) {
	u := m.draw(rt)
	m.next++
	id := fmt.Sprint("r", m.next)
	amount := limits.QuotaAmount{Meter: "calls", Group: fmt.Appendf(nil, `{"model":%q}`, u.model), Amount: metering.Whole(u.amount)}
	lasts := time.Duration(rapid.IntRange(1, 90).Draw(rt, "minutes")) * time.Minute
	answers, err := m.store.Quotas.Reserve(m.Context(), m.tenant, "acme", []limits.ReserveRequest{{ID: id, Amounts: []limits.QuotaAmount{amount}, For: lasts, Digest: []byte(id)}}, m.now)
	require.NoError(m, err)
	require.NoError(m, answers[0].Err)
	allowed, exceeded := m.allows(u.model, u.amount)
	require.Equal(m, allowed, answers[0].Refusal == nil, "%+v of %+v", u, m.quotas)
	if allowed {
		require.Equal(m, exceeded, answers[0].Exceeded)
		m.reservations[id] = &modelledReservation{modelledUse: u, expires: m.now.Add(lasts)}
	}
}

func (m *quotaModel) one(rt *rapid.T) (id string, r *modelledReservation) {
	id = fmt.Sprint("r", rapid.IntRange(0, m.next).Draw(rt, "reservation"))
	if r = m.reservations[id]; r == nil {
		rt.Skip("was refused")
	}
	return id, r
}

func (m *quotaModel) settle(rt *rapid.T) {
	id, r := m.one(rt)
	u := modelledUse{m.now, r.model, rapid.Int64Range(0, 20).Draw(rt, "settled")}
	event := dbtest.Event(m, "call", "acme", u.at, fmt.Sprint(u.amount), metering.SettledKey(id, r.at, 0), fmt.Sprintf(`{"model":%q}`, u.model))
	_, _, err := m.writer.Settle(m.Context(), m.tenant, id, []metering.Event{event}, m.now)
	if r.settled {
		if err != nil {
			require.Equal(m, metering.CodeConflict, metering.CodeOf(err))
		}
		return // a repeat succeeds only with the same events
	}
	require.NoError(m, err)
	r.ended, r.settled = true, true
	m.used = append(m.used, u)
}

func (m *quotaModel) release(rt *rapid.T) {
	id, r := m.one(rt)
	err := m.store.Quotas.Release(m.Context(), m.tenant, id, m.now)
	require.Equal(m, r.settled, err != nil)
	r.ended = true
}

func (m *quotaModel) extend(rt *rapid.T) {
	id, r := m.one(rt)
	_, err := m.store.Quotas.Extend(m.Context(), m.tenant, id, time.Hour, m.now)
	if r.ended || !r.expires.After(m.now) {
		require.Equal(m, metering.CodeConflict, metering.CodeOf(err))
		return
	}
	require.NoError(m, err)
	r.expires = m.now.Add(time.Hour)
}

func (m *quotaModel) wait(rt *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(1, 300).Draw(rt, "minutes")) * time.Minute)
}

func (m *quotaModel) fold(*rapid.T) { require.NoError(m, m.store.Folds.Tenant(m.Context(), m.tenant)) }

// requireLevels requires that the store returns the same levels and decisions as the model.
func (m *quotaModel) requireLevels(*rapid.T) {
	levels, err := m.store.Quotas.OfCustomer(m.Context(), m.tenant, m.customer.ID, m.now)
	require.NoError(m, err)
	require.Len(m, levels, len(m.quotas))
	for _, l := range levels {
		name := string(l.Period)
		if l.Group != nil {
			name += "a"
		}
		used, reserved := m.levels(m.quotas[name])
		require.Equal(m, fmt.Sprint(used, " ", reserved, " ", m.quotas[name].limit), fmt.Sprint(l.Used, " ", l.Reserved, " ", *l.Limit), name)
	}
	for _, model := range models {
		allowed, exceeded := m.allows(model, 7)
		d := m.check(m.now, "7", fmt.Appendf(nil, `{"model":%q}`, model)...)
		require.Equal(m, [2]bool{allowed, exceeded}, [2]bool{d.Allowed, d.Exceeded})
	}
}

func TestPropertyQuotasCountLikeReferenceModel(t *testing.T) {
	t.Parallel()
	histories.Check(t, func(rt *rapid.T) {
		m := &quotaModel{limited: newLimited(t), now: november, quotas: map[string]modelledQuota{}, reservations: map[string]*modelledReservation{}}
		rt.Repeat(map[string]func(*rapid.T){
			"": m.requireLevels, "set": m.set, "ingest": m.ingest, "reserve": m.reserveSome, "settle": m.settle,
			"release": m.release, "extend": m.extend, "wait": m.wait, "fold": m.fold,
		})
	})
}
