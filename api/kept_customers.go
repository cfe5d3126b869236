package api

import (
	"context"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

type customerName struct {
	tenant     metering.TenantID
	externalID string
}

// keptCustomers caches one value of type T per customer, such as the start of the first billing period.
type keptCustomers[T any] struct {
	cache *boundedCache[customerName, T]
}

func keepCustomers[T any]() keptCustomers[T] {
	return keptCustomers[T]{newBoundedCache[customerName, T]()}
}

// get returns the values of customers by external ID. It reads values that are missing in the cache or older
// than cachedFor. If reading fails or takes too long, get returns the cached values and the error.
func (k keptCustomers[T]) get(ctx context.Context, tenant metering.TenantID, externalIDs []string, now time.Time,
	read func(ctx context.Context, tenant metering.TenantID, externalIDs []string, now time.Time) (map[string]T, error),
) (map[string]T, error) {
	all := make(map[string]T)
	var missing []string
	for _, id := range externalIDs {
		of, found := k.cache.get(customerName{tenant, id}, now)
		if !found {
			missing = append(missing, id)
			continue
		}
		all[id] = of
	}
	if len(missing) == 0 {
		return all, nil
	}
	ctx, cancel := context.WithTimeout(ctx, warningsWait)
	defer cancel()
	found, err := read(ctx, tenant, missing, now)
	for id, of := range found {
		all[id] = k.cache.add(customerName{tenant, id}, of, now)
	}
	return all, err
}
