package api

import (
	"context"
	"maps"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/odometer-metering/odometer/metering"
)

const (
	// customersKeptFor is how long what the warnings about events need of a customer is kept: it takes
	// too long to be read for each request.
	customersKeptFor = time.Minute
	maxKeptCustomers = 10_000
)

type customerName struct {
	tenant     metering.TenantID
	externalID string
}

type keptOf[T any] struct {
	of     T
	readAt time.Time
}

// keptCustomers keeps what was read of customers.
type keptCustomers[T any] struct {
	cache *lru.Cache[customerName, keptOf[T]]
}

func keepCustomers[T any]() (k keptCustomers[T], err error) {
	k.cache, err = lru.New[customerName, keptOf[T]](maxKeptCustomers)
	return k, err
}

// get returns, by external id, what was read of customers at most customersKeptFor ago, and reads
// the others. If they cannot be read in time, it returns the kept ones and the error.
func (k keptCustomers[T]) get(ctx context.Context, tenant metering.TenantID, externalIDs []string, now time.Time,
	read func(ctx context.Context, tenant metering.TenantID, externalIDs []string, now time.Time) (map[string]T, error),
) (map[string]T, error) {
	all := make(map[string]T)
	var missing []string
	for _, id := range externalIDs {
		kept, found := k.cache.Get(customerName{tenant, id})
		if !found || now.Sub(kept.readAt) >= customersKeptFor {
			missing = append(missing, id)
			continue
		}
		all[id] = kept.of
	}
	if len(missing) == 0 {
		return all, nil
	}
	ctx, cancel := context.WithTimeout(ctx, warningsWait)
	defer cancel()
	found, err := read(ctx, tenant, missing, now)
	for id, of := range found {
		k.cache.Add(customerName{tenant, id}, keptOf[T]{of, now})
	}
	maps.Copy(all, found)
	return all, err
}
