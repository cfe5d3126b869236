package db_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/limits"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// limited is a tenant with the customer acme, for which tests set quotas.
type limited struct {
	*testing.T

	store    *db.DB
	tenant   metering.TenantID
	customer metering.Customer
	meter    metering.Meter // sums events of type call, by model
	writer   *usage.Writer
}

func newLimited(t *testing.T) *limited {
	t.Helper()
	return newLimitedOn(t, dbtest.Open(t))
}

// newLimitedOn is newLimited on a given store. Tests that call Sweep need a store of their own, because Sweep deletes
// rows of all tenants.
func newLimitedOn(t *testing.T, store *db.DB) *limited {
	t.Helper()
	l := &limited{T: t, store: store, tenant: dbtest.Tenant(t, store).ID}
	l.customer, l.meter = dbtest.Customer(t, store, l.tenant, "acme"), dbtest.Meter(t, store, l.tenant, "calls", "call", "model")
	l.writer = store.NewWriter(dbtest.WriterOptions)
	t.Cleanup(l.writer.Close)
	return l
}

func (l *limited) quota(limit string, mode metering.QuotaMode, period metering.QuotaPeriod, edit ...func(*metering.Quota)) limits.StoredQuota {
	l.Helper()
	q := metering.Quota{CustomerID: l.customer.ID, Meter: l.meter, Mode: mode, Period: period}
	if limit != "" {
		q.Limit = new(metering.MustDecimal(limit))
	}
	for _, e := range edit {
		e(&q)
	}
	set, err := l.store.Quotas.Set(l.Context(), l.tenant, metering.Operator, q, november)
	require.NoError(l, err)
	return set
}

func ofModel(model string) func(*metering.Quota) {
	return func(q *metering.Quota) {
		group, err := q.Meter.Version.QuotaGroup("", fmt.Appendf(nil, `{"model":%q}`, model))
		if err != nil {
			panic(err)
		}
		q.Group = &group
	}
}

func (l *limited) use(at time.Time, value, model string) {
	l.Helper()
	_, err := l.writer.Ingest(l.Context(), l.tenant, []metering.Event{dbtest.Event(l, "call", "acme", at, value, "", fmt.Sprintf(`{"model":%q}`, model))})
	require.NoError(l, err)
}

func (l *limited) check(at time.Time, amount string, group ...byte) metering.QuotaDecision {
	l.Helper()
	check := limits.QuotaCheck{Customer: "acme", QuotaAmount: limits.QuotaAmount{Meter: "calls", Group: group, Amount: metering.MustDecimal(amount)}}
	decisions, err := l.store.Quotas.Check(l.Context(), l.tenant, []limits.QuotaCheck{check}, at)
	require.NoError(l, err)
	return decisions[0]
}

func (l *limited) reserve(at time.Time, id, amount string) limits.Reservation {
	l.Helper()
	answers, err := l.store.Quotas.Reserve(l.Context(), l.tenant, "acme", []limits.ReserveRequest{request(at, id, amount)}, at)
	require.NoError(l, err)
	return answers[0]
}

func request(at time.Time, id, amount string) limits.ReserveRequest {
	return limits.ReserveRequest{
		ID: id, Amounts: []limits.QuotaAmount{{Meter: "calls", Amount: metering.MustDecimal(amount)}}, For: 5 * time.Minute, Digest: []byte(amount),
	}
}

func left(t *testing.T, d metering.QuotaDecision) string {
	t.Helper()
	require.NotNil(t, d.Tightest)
	require.NotNil(t, d.Tightest.Remaining())
	return d.Tightest.Remaining().String()
}

func TestAQuotaStartsAgainInEachWindow(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	l.quota("10", metering.HardQuota, metering.PerDay)
	l.use(november, "9.5", "a")
	require.Equal(t, "0.5", left(t, l.check(november, "0.5")))
	require.True(t, l.check(november, "0.5").Allowed)
	over := l.check(november, "0.51")
	require.False(t, over.Allowed)
	require.Equal(t, metering.WindowOf(november, metering.Day, time.UTC).End, over.Tightest.ResetsAt().UTC())
	require.Equal(t, "10", left(t, l.check(november.AddDate(0, 0, 1), "10")))
}

func TestTheTightestOfSeveralQuotasDecides(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	require.Equal(t, metering.QuotaDecision{Allowed: true}, l.check(november, "1000"), "there is no quota")
	l.quota("", metering.HardQuota, metering.PerHour)
	require.True(t, l.check(november, "1000").Allowed, "unlimited")
	soft := l.quota("5", metering.SoftQuota, metering.PerMonth)
	hard := l.quota("20", metering.HardQuota, metering.PerLifetime)
	grouped := l.quota("3", metering.HardQuota, metering.PerMonth, ofModel("a"))
	l.use(november, "2", "a")
	l.use(november, "4", "b")
	d := l.check(november, "14")
	require.True(t, d.Allowed && d.Exceeded)
	require.Equal(t, soft.ID, d.Tightest.ID)
	d = l.check(november, "15")
	require.False(t, d.Allowed)
	require.Equal(t, hard.ID, d.Tightest.ID, "the hard quota refuses the usage, although the soft quota has less left")
	require.Nil(t, d.Tightest.ResetsAt())
	d = l.check(november, "2", []byte(`{"model":"a"}`)...)
	require.False(t, d.Allowed)
	require.Equal(t, grouped.ID, d.Tightest.ID)
	require.Equal(t, "2", d.Tightest.Used.String())
	require.True(t, l.check(november, "2", []byte(`{"model":"b"}`)...).Allowed)
}

func TestACustomersQuotaReplacesThatOfItsPlan(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	plan, err := l.store.Plans.Create(t.Context(), l.tenant, metering.Operator, metering.Plan{Slug: "pro", Name: "Pro"})
	require.NoError(t, err)
	ofPlan := l.quota("100", metering.HardQuota, metering.PerMonth, func(q *metering.Quota) { q.CustomerID, q.PlanID = 0, plan.ID })
	require.Nil(t, l.check(november, "1").Tightest, "the customer has another plan")
	require.NoError(t, l.store.Plans.Assign(t.Context(), l.tenant, metering.Operator, l.customer.ID, billing.Assignment{PlanID: plan.ID, EffectiveFrom: november}))
	require.Equal(t, ofPlan.ID, l.check(november, "1").Tightest.ID)
	own := l.quota("200", metering.HardQuota, metering.PerMonth)
	require.Equal(t, own.ID, l.check(november, "1").Tightest.ID)
	require.Equal(t, "200", left(t, l.check(november, "1")))
	again := l.quota("300", metering.SoftQuota, metering.PerMonth)
	require.Equal(t, own.ID, again.ID, "a second PUT changes the quota")
	require.NoError(t, l.store.Quotas.Delete(t.Context(), l.tenant, metering.Operator, own.ID))
	require.Equal(t, ofPlan.ID, l.check(november, "1").Tightest.ID)
	levels, err := l.store.Quotas.OfCustomer(t.Context(), l.tenant, l.customer.ID, november)
	require.NoError(t, err)
	require.Len(t, levels, 1)
}

func TestReservationIsSettledOnce(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	l.quota("10", metering.HardQuota, metering.PerBilling)
	require.Nil(t, l.reserve(november, "one", "6").Refusal)
	require.Nil(t, l.reserve(november, "one", "6").Refusal, "a repeat")
	require.Equal(t, metering.CodeConflict, metering.CodeOf(l.reserve(november, "one", "7").Err))
	refused := l.reserve(november, "two", "5")
	require.Equal(t, "4", refused.Refusal.Remaining().String())
	require.Equal(t, "6", l.check(november, "4").Tightest.Reserved.String())

	settle := func(value string) ([]usage.Outcome, bool, error) {
		return l.writer.Settle(t.Context(), l.tenant, "one", []metering.Event{dbtest.Event(t, "call", "acme", november, value, metering.SettledKey("one", november, 0), `{"model":"a"}`)}, november)
	}
	for range 2 {
		outcomes, _, err := settle("2.5")
		require.NoError(t, err)
		require.Equal(t, []usage.Outcome{{}}, outcomes)
	}
	_, _, err := settle("3")
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	d := l.check(november, "1")
	require.Equal(t, "2.5", d.Tightest.Used.String())
	require.True(t, d.Tightest.Reserved.IsZero())
	require.Equal(t, metering.CodeConflict, metering.CodeOf(l.store.Quotas.Release(t.Context(), l.tenant, "one", november)))
	require.Equal(t, metering.CodeConflict, metering.CodeOf(l.reserve(november, "one", "6").Err))
}

func TestReleasedAndExpiredReservationsFreeTheQuota(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	l.quota("10", metering.HardQuota, metering.PerMonth)
	l.reserve(november, "released", "10")
	require.NotNil(t, l.reserve(november, "refused", "1").Refusal)
	for range 2 {
		require.NoError(t, l.store.Quotas.Release(t.Context(), l.tenant, "released", november))
	}
	l.reserve(november, "expired", "10")
	extended, err := l.store.Quotas.Extend(t.Context(), l.tenant, "expired", time.Hour, november)
	require.NoError(t, err)
	require.Equal(t, november.Add(time.Hour), extended.ExpiresAt.UTC())
	require.NotNil(t, l.reserve(november.Add(time.Hour-time.Second), "refused", "1").Refusal)
	require.Nil(t, l.reserve(november.Add(time.Hour), "next", "10").Refusal)
	_, err = l.store.Quotas.Extend(t.Context(), l.tenant, "expired", 2*time.Hour, november)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err), "a replica with a slow clock cannot extend it: the units were granted to another reservation")
	_, _, err = l.writer.Settle(t.Context(), l.tenant, "expired", []metering.Event{dbtest.Event(t, "call", "acme", november, "3", "key", `{"model":"a"}`)}, november)
	require.NoError(t, err, "the events of the expired reservation are counted")
	require.Equal(t, "3", l.check(november, "1").Tightest.Used.String())
	_, err = l.store.Quotas.Extend(t.Context(), l.tenant, "none", time.Hour, november)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	_, _, err = l.writer.Settle(t.Context(), l.tenant, "none", []metering.Event{dbtest.Event(t, "call", "acme", november, "3", "other", "")}, november)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(err))
	require.Equal(t, "3", l.check(november, "1").Tightest.Used.String())
}

func TestACustomerHasABoundedNumberOfQuotas(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	for n := range metering.MaxQuotas {
		l.quota("1", metering.HardQuota, metering.PerDay, ofModel(fmt.Sprint(n)))
	}
	l.quota("2", metering.HardQuota, metering.PerDay, ofModel("0")) // a quota that exists already
	limit := metering.Whole(1)
	_, err := l.store.Quotas.Set(t.Context(), l.tenant, metering.Operator, metering.Quota{CustomerID: l.customer.ID, Meter: l.meter, Limit: &limit, Mode: metering.HardQuota, Period: metering.PerDay}, november)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	require.ErrorContains(t, err, "the customer already has 100 quotas, the maximum; delete one first")
}

// TestAThousandRequestsAtOnceAreGrantedUpToTheLimit sends a thousand concurrent requests for one unit each to three
// replicas of the API.
func TestAThousandRequestsAtOnceAreGrantedUpToTheLimit(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	l.quota("100", metering.HardQuota, metering.PerMonth)
	var replicas []*limits.Reserver
	for range 3 {
		replica := l.store.NewReserver(func() time.Time { return november })
		replica.Timeout = dbtest.Deadline
		replicas = append(replicas, replica)
	}
	var requests sync.WaitGroup
	var mu sync.Mutex
	granted := 0
	for i := range 1000 {
		requests.Go(func() {
			answer, err := replicas[i%3].Reserve(t.Context(), l.tenant, "acme", request(november, fmt.Sprint(i), "1"))
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
			} else if answer.Refusal == nil {
				granted++
			}
		})
	}
	requests.Wait()
	require.Equal(t, 100, granted)
	require.Equal(t, "100", l.check(november, "0").Tightest.Reserved.String())
}

func TestMeterKeepsGroupByWhileQuotaUsesItsGroup(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	set := l.quota("1", metering.HardQuota, metering.PerDay, ofModel("a"))
	_, _, err := l.store.Meters.Update(t.Context(), l.tenant, metering.Operator, "calls", metersBy([]string{}))
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err))
	require.NoError(t, l.store.Quotas.Delete(t.Context(), l.tenant, metering.Operator, set.ID))
	l.use(november, "1", "a")
	_, backfilling, err := l.store.Meters.Update(t.Context(), l.tenant, metering.Operator, "calls", metersBy([]string{}))
	require.NoError(t, err)
	require.NotNil(t, backfilling)
	q := metering.Quota{CustomerID: l.customer.ID, Meter: l.meter, Mode: metering.HardQuota, Period: metering.PerDay}
	ofModel("a")(&q)
	_, err = l.store.Quotas.Set(t.Context(), l.tenant, metering.Operator, q, november)
	require.Equal(t, metering.CodeConflict, metering.CodeOf(err), "the group_by that is backfilling has no such group")
}

func TestSweepDeletesReservationsExpiredBeforeInstant(t *testing.T) {
	t.Parallel()
	store, _ := dbtest.Fresh(t)
	l := newLimitedOn(t, store)
	l.reserve(november, "old", "1")
	l.reserve(november.Add(time.Hour), "new", "1")
	_, err := l.store.Quotas.Sweep(t.Context(), november.Add(30*time.Minute), 10_000)
	require.NoError(t, err)
	require.Equal(t, metering.CodeNotFound, metering.CodeOf(l.store.Quotas.Release(t.Context(), l.tenant, "old", november)))
	require.NoError(t, l.store.Quotas.Release(t.Context(), l.tenant, "new", november))
}

func TestASettlementStoresAllOfItsEventsOrNone(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	l.quota("10", metering.HardQuota, metering.PerMonth)
	l.reserve(november, "one", "6")
	event := func(value string) metering.Event {
		return dbtest.Event(t, "call", "acme", november, value, "key", `{"model":"a"}`)
	}
	_, _, err := l.writer.Settle(t.Context(), l.tenant, "one", []metering.Event{event("1"), event("2")}, november)
	require.Equal(t, metering.CodeInvalid, metering.CodeOf(err))
	require.ErrorContains(t, err, "body.events[1].idempotency_key")
	require.Equal(t, "0", l.check(november, "0").Tightest.Used.String())
	require.Equal(t, "6", l.check(november, "0").Tightest.Reserved.String())
}

func TestReservationIDCanBeReusedAfterSweep(t *testing.T) {
	t.Parallel()
	store, _ := dbtest.Fresh(t)
	l := newLimitedOn(t, store)
	l.quota("10", metering.HardQuota, metering.PerLifetime)
	for n := range 2 {
		at := november.AddDate(0, n, 0)
		l.reserve(at, "one", "1")
		granted, err := l.store.Quotas.Granted(t.Context(), l.tenant, "one")
		require.NoError(t, err)
		event := dbtest.Event(t, "call", "acme", november, "1", metering.SettledKey("one", granted.At, 0), `{"model":"a"}`)
		outcomes, _, err := l.writer.Settle(t.Context(), l.tenant, "one", []metering.Event{event}, at)
		require.NoError(t, err)
		require.Equal(t, []usage.Outcome{{}}, outcomes)
		_, err = l.store.Quotas.Sweep(t.Context(), at.AddDate(0, 0, 2), 10_000)
		require.NoError(t, err)
	}
	require.Equal(t, "2", l.check(november, "0").Tightest.Used.String())
}

func TestGroupOfQuotaIsNotCountedInOtherGroup(t *testing.T) {
	t.Parallel()
	l := newLimited(t)
	l.quota("10", metering.HardQuota, metering.PerLifetime, ofModel("a"))
	conn := dbtest.Conn(t)
	fillGroups(t, conn, l.tenant, l.meter)
	l.use(november, "4", "a")
	l.use(november, "5", "other")
	require.Equal(t, "4", l.check(november, "0", []byte(`{"model":"a"}`)...).Tightest.Used.String())
	q := metering.Quota{CustomerID: l.customer.ID, Meter: l.meter, Mode: metering.HardQuota, Period: metering.PerDay}
	ofModel("other")(&q)
	_, err := l.store.Quotas.Set(t.Context(), l.tenant, metering.Operator, q, november)
	require.Equal(t, metering.CodeInvalid, metering.CodeOf(err))
}

// TestNothingIsReservedForACustomerThatIsErasedMeanwhile erases a customer after a request to reserve has looked it up.
// The request waits to end an expired reservation that another transaction has locked.
func TestNothingIsReservedForACustomerThatIsErasedMeanwhile(t *testing.T) {
	t.Parallel()
	r := newRace(t)
	dbtest.Customer(t, r.store, r.tenant, "gone")
	reserve := func(at time.Time, id string) (answer limits.Reservation, err error) {
		answers, err := r.store.Quotas.Reserve(t.Context(), r.tenant, "gone", []limits.ReserveRequest{request(at, id, "1")}, at)
		if err == nil {
			answer = answers[0]
		}
		return answer, err
	}
	expired, err := reserve(november, "expired")
	require.NoError(t, err)
	require.NoError(t, expired.Err)

	holder := r.hold(`select from quota_reservations where tenant_id = $1 for update`)
	var answer limits.Reservation
	reserved := start(func() (err error) {
		answer, err = reserve(november.Add(time.Hour), "late")
		return err
	})
	awaitLockWaiters(t, r.observer, 1)
	require.NoError(t, r.erase("gone"))
	require.NoError(t, holder.Rollback(t.Context()))
	require.NoError(t, <-reserved)
	require.Equal(t, metering.CodeInvalid, metering.CodeOf(answer.Err))
	var stored int
	require.NoError(t, r.observer.QueryRow(t.Context(), `select count(*) from quota_reservations where tenant_id = $1 and id = 'late'`, r.tenant).Scan(&stored))
	require.Zero(t, stored)
}
