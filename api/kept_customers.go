package api

import (
	"context"
	"maps"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"

	"github.com/odometer-metering/odometer/metering"
)

const (
	// customersKeptFor is the time for which keptCustomers caches data of a customer. The warnings about
	// events need this data, and reading it for each request would take too long.
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

// keptCustomers caches one value of type T per customer, such as the start of the first billing period.
type keptCustomers[T any] struct {
	cache *lru.Cache[customerName, keptOf[T]]
}

func keepCustomers[T any]() (k keptCustomers[T], err error) {
	k.cache, err = lru.New[customerName, keptOf[T]](maxKeptCustomers)
	return k, err
}

// get returns the values of customers by external ID. It reads values that are missing in the cache or older
// than customersKeptFor. If reading fails or takes too long, get returns the cached values and the error.
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
