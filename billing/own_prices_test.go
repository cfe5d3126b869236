package billing_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// pricedLife holds the result of random writes of prices and plan assignments. Each level (meter, plan, customer) has
// the version that was written last for each instant.
type pricedLife struct {
	catalog  map[metering.MeterID][]billing.Price
	customer billing.Customer
	version  int
}

func newPricedLife(random *rand.Rand) *pricedLife {
	l := &pricedLife{catalog: make(map[metering.MeterID][]billing.Price)}
	for range random.IntN(25) {
		l.write(random)
	}
	return l
}

// write adds a random price version or plan assignment. As in the database, version numbers follow the order of the
// writes, and a price has one version for each instant.
func (l *pricedLife) write(random *rand.Rand) {
	from := january.Start.AddDate(0, 0, random.IntN(10))
	if random.IntN(5) == 0 {
		a := billing.Assignment{PlanID: metering.PlanID(random.IntN(3)), EffectiveFrom: from}
		l.customer.Plans = append(l.customer.Plans, a)
		return
	}
	l.version++
	p := billing.Price{MeterID: metering.MeterID(1 + random.IntN(2)), Version: l.version, EffectiveFrom: from}
	switch random.IntN(3) {
	case 0:
		p.PlanID = metering.PlanID(1 + random.IntN(2))
	case 1:
		p.CustomerID, p.Inherits = 7, random.IntN(3) == 0
		l.customer.Prices = unreplaced(l.customer.Prices, p)
		l.customer.Prices = append(l.customer.Prices, p)
		return
	}
	l.catalog[p.MeterID] = append(unreplaced(l.catalog[p.MeterID], p), p)
}

// unreplaced returns the versions without the one that p replaces: the version of the same series and instant.
func unreplaced(versions []billing.Price, p billing.Price) (rest []billing.Price) {
	for _, v := range versions {
		if !v.SameSeries(p) || !v.EffectiveFrom.Equal(p.EffectiveFrom) {
			rest = append(rest, v)
		}
	}
	return rest
}

// inForceAt returns the version in force at t. As a simple reference, it steps back by 12 hours until a version
// begins.
func inForceAt(versions []billing.Price, series billing.Price, t time.Time) (billing.Price, bool) {
	for ; !t.Before(january.Start); t = t.Add(-12 * time.Hour) {
		for _, v := range versions {
			if v.SameSeries(series) && v.EffectiveFrom.Equal(t) {
				return v, true
			}
		}
	}
	return billing.Price{}, false
}

// expected is the reference implementation of Customer.PriceAt.
func (l *pricedLife) expected(meter metering.MeterID, t time.Time) (billing.Price, bool) {
	if own, ok := inForceAt(l.customer.Prices, billing.Price{MeterID: meter, CustomerID: 7}, t); ok && !own.Inherits {
		return own, true
	}
	var plan metering.PlanID
	var since time.Time
	for _, a := range l.customer.Plans { // a later assignment of the same instant replaces the earlier one
		if !a.EffectiveFrom.After(t) && !a.EffectiveFrom.Before(since) {
			plan, since = a.PlanID, a.EffectiveFrom
		}
	}
	if plan != 0 {
		if of, ok := inForceAt(l.catalog[meter], billing.Price{MeterID: meter, PlanID: plan}, t); ok {
			return of, true
		}
	}
	return inForceAt(l.catalog[meter], billing.Price{MeterID: meter}, t)
}

func TestPricePrecedenceIsCustomerThenPlanThenMeter(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	sources := make(map[billing.PriceSource]int)
	for range 2_000 {
		l := newPricedLife(random)
		for half := range 22 {
			at := january.Start.Add(time.Duration(half) * 12 * time.Hour)
			for meter := range metering.MeterID(2) {
				want, priced := l.expected(meter+1, at)
				got, ok := l.customer.PriceAt(meter+1, l.catalog[meter+1], at)
				require.Equal(t, priced, ok)
				require.Equal(t, want, got)
				sources[got.Source()]++
			}
		}
	}
	require.Len(t, sources, 4, "each level applied, and none did")
}

// OwnVersions lists the versions in force, so that its result changes only when a version takes effect.
func TestOwnVersionsListsVersionsInForce(t *testing.T) {
	t.Parallel()
	own := []billing.Price{
		{MeterID: 2, CustomerID: 7, Version: 3, EffectiveFrom: january.Start},
		{MeterID: 1, CustomerID: 7, Version: 1, EffectiveFrom: january.Start},
		{MeterID: 1, CustomerID: 7, Version: 2, EffectiveFrom: february.Start, Inherits: true},
	}
	require.Empty(t, billing.OwnVersions(nil, february.Start))
	require.Empty(t, billing.OwnVersions(own, january.Start.Add(-1)))
	require.Equal(t, " 1:1 2:3", billing.OwnVersions(own, january.Start))
	require.Equal(t, " 1:2 2:3", billing.OwnVersions(own, february.Start))
}
