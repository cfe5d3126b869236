package api

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/odometer-metering/odometer/metering"
)

// maxKeptReaders is the maximum number of tenants with a reader in keptValues. If a tenant's reader is deleted while it
// reads, the tenant's next request reads at the same time.
const maxKeptReaders = 1000

// keptValues caches values of tenants by key, such as the start of each customer's first billing period. At most one
// read of a tenant is in progress. Requests that miss values during the read share the next one.
type keptValues[K comparable, V any] struct {
	now   func() time.Time
	read  readValues[K, V]
	cache *boundedCache[keyOfTenant[K], V]

	mu      sync.Mutex
	readers *simplelru.LRU[metering.TenantID, *coalescer[K, V]]
}

type readValues[K comparable, V any] func(ctx context.Context, tenant metering.TenantID, keys []K, now time.Time) (map[K]V, error)

type keyOfTenant[K comparable] struct {
	tenant metering.TenantID
	key    K
}

func newKeptValues[K comparable, V any](now func() time.Time, read readValues[K, V]) *keptValues[K, V] {
	k := &keptValues[K, V]{now: now, read: read, cache: newBoundedCache[keyOfTenant[K], V]()}
	k.readers, _ = simplelru.NewLRU[metering.TenantID, *coalescer[K, V]](maxKeptReaders, nil) // fails only for a size below 1
	return k
}

// get returns the tenant's values of the keys. It reads values that are missing in the cache or older than cachedFor.
// If reading fails or takes longer than warningsWait, get returns the cached values and the error.
func (k *keptValues[K, V]) get(ctx context.Context, tenant metering.TenantID, keys ...K) (map[K]V, error) {
	values, missing := k.cached(tenant, keys, k.now())
	if len(missing) == 0 {
		return values, nil
	}
	ctx, cancel := context.WithTimeout(ctx, warningsWait)
	defer cancel()
	found, err := k.reader(tenant).findAll(ctx, missing...)
	for _, key := range missing {
		if value, exists := found[key]; exists {
			values[key] = value
		}
	}
	return values, err
}

func (k *keptValues[K, V]) cached(tenant metering.TenantID, keys []K, now time.Time) (values map[K]V, missing []K) {
	values = make(map[K]V)
	for _, key := range keys {
		value, found := k.cache.get(keyOfTenant[K]{tenant, key}, now)
		if !found {
			missing = append(missing, key)
			continue
		}
		values[key] = value
	}
	return values, missing
}

func (k *keptValues[K, V]) reader(tenant metering.TenantID) *coalescer[K, V] {
	k.mu.Lock()
	defer k.mu.Unlock()
	reader, found := k.readers.Get(tenant)
	if !found {
		reader = &coalescer[K, V]{timeout: warningsWait, run: func(ctx context.Context, keys []K) (map[K]V, error) {
			return k.readMissing(ctx, tenant, keys)
		}}
		k.readers.Add(tenant, reader)
	}
	return reader
}

// readMissing returns the values of the keys. It reads only values that no earlier read has cached since the request
// missed them.
func (k *keptValues[K, V]) readMissing(ctx context.Context, tenant metering.TenantID, keys []K) (map[K]V, error) {
	now := k.now()
	values, missing := k.cached(tenant, keys, now)
	if len(missing) == 0 {
		return values, nil
	}
	found, err := k.read(ctx, tenant, missing, now)
	for key, value := range found {
		values[key] = k.cache.add(keyOfTenant[K]{tenant, key}, value, now)
	}
	return values, err
}
