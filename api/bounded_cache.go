package api

import (
	"math"
	"reflect"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

const (
	// cachedFor is the time for which a boundedCache returns a value. The warnings about events and the list of
	// attention entries need these values, and reading them for each request would take too long.
	cachedFor = time.Minute
	// maxCachedBytes is the maximum size of a boundedCache in memory.
	maxCachedBytes = 8 << 20
)

// boundedCache caches values for cachedFor. If the values exceed maxCachedBytes, it deletes the least recently used
// ones. A value that alone exceeds maxCachedBytes is replaced with the zero value, because each request would read it
// otherwise.
type boundedCache[K comparable, V any] struct {
	mu     sync.Mutex
	values *simplelru.LRU[K, cached[V]]
	bytes  int // of all values
}

type cached[V any] struct {
	value  V
	readAt time.Time
	bytes  int
}

func newBoundedCache[K comparable, V any]() *boundedCache[K, V] {
	c := new(boundedCache[K, V])
	c.values, _ = simplelru.NewLRU[K, cached[V]](math.MaxInt, func(_ K, deleted cached[V]) { c.bytes -= deleted.bytes }) // fails only for a size below 1
	return c
}

// get returns the stored value unless it is older than cachedFor.
func (c *boundedCache[K, V]) get(key K, now time.Time) (value V, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	of, found := c.values.Get(key)
	if !found || now.Sub(of.readAt) >= cachedFor {
		return value, false
	}
	return of.value, true
}

// add stores a value and returns the stored value.
func (c *boundedCache[K, V]) add(key K, value V, now time.Time) V {
	of := cached[V]{value, now, entryBytes + heldBytes(reflect.ValueOf(key)) + heldBytes(reflect.ValueOf(value))}
	if of.bytes > maxCachedBytes {
		of = cached[V]{readAt: now, bytes: entryBytes + heldBytes(reflect.ValueOf(key))}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.values.Remove(key)
	c.values.Add(key, of)
	for c.bytes += of.bytes; c.bytes > maxCachedBytes; {
		c.values.RemoveOldest()
	}
	return of.value
}

// Approximate sizes in memory.
const (
	entryBytes      = 256 // an entry of a boundedCache, without the memory to which its key and value refer
	allocationBytes = 8   // the unused bytes of an allocation
	mapBytes        = 64  // a map without its slots
	minMapSlots     = 8
)

// heldBytes returns the approximate size of the memory to which a value refers. The size of the value itself is
// excluded. Memory that several pointers refer to counts for each pointer.
func heldBytes(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		return allocationBytes + v.Len()
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			n = allocationBytes + int(v.Elem().Type().Size()) + heldBytes(v.Elem())
		}
	case reflect.Slice:
		n = allocationBytes + v.Cap()*int(v.Type().Elem().Size())
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			n += heldBytes(v.Index(i))
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return 0 // a time refers only to its location, which all times share
		}
		for _, field := range v.Fields() {
			n += heldBytes(field)
		}
	case reflect.Map:
		n = mapBytes + max(minMapSlots, 2*v.Len())*int(v.Type().Key().Size()+v.Type().Elem().Size())
		for entry := v.MapRange(); entry.Next(); {
			n += heldBytes(entry.Key()) + heldBytes(entry.Value())
		}
	}
	return n
}
