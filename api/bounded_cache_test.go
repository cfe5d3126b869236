package api

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// TestCachedValuesAreBoundedInBytes reads values of 1 MiB for more customers than the cache can hold. The cache deletes
// the least recently used value. A value that is larger than the whole cache is cached as empty.
func TestCachedValuesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	now, size, hit := time.Unix(0, 0), 0, false
	cache := newKeptValues(func() time.Time { return now }, func(_ context.Context, _ metering.TenantID, missing []string, _ time.Time) (map[string][]string, error) {
		hit = false
		return map[string][]string{missing[0]: {strings.Repeat("x", size)}}, nil
	})
	get := func(customer string, bytes int) (value []string, isHit bool) {
		size, hit = bytes, true
		got, err := cache.get(t.Context(), 1, customer)
		require.NoError(t, err)
		require.Contains(t, got, customer)
		return got[customer], hit
	}
	const mebibyte = 1 << 20
	isCached := func(customer string) bool {
		value, hit := get(customer, mebibyte)
		require.Len(t, value, 1)
		require.Len(t, value[0], mebibyte)
		return hit
	}
	readSeven := func(hit bool) {
		for n := range 7 {
			require.Equal(t, hit, isCached(fmt.Sprint(n)), n)
		}
	}
	readSeven(false)
	readSeven(true)
	now = now.Add(cachedFor)
	readSeven(false)
	readSeven(true)

	require.True(t, isCached("0"))
	require.False(t, isCached("another"))
	require.True(t, isCached("0"))
	require.False(t, isCached("1"), "it was the least recently used one")
	for _, want := range []bool{false, true} {
		value, hit := get("large", maxCachedBytes+1)
		require.Empty(t, value)
		require.Equal(t, want, hit)
	}
	require.True(t, isCached("0"), "the large value has replaced none")
}

func TestTheMemoryOfAValueIsEstimated(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	text := strings.Repeat("x", size)
	type unexported struct{ text string }
	for name, value := range map[string]any{
		"string": text, "pointer": &text, "slice": []string{text}, "array": [1]string{text}, "interface": []any{text},
		"key": map[string]int{text: 1}, "value": map[int]string{1: text}, "field": unexported{text}, "capacity": make([]byte, 0, size),
	} {
		estimate := heldBytes(reflect.ValueOf(value))
		require.GreaterOrEqual(t, estimate, size, name)
		require.Less(t, estimate, size+1000, name)
	}
	require.Zero(t, heldBytes(reflect.ValueOf(time.Unix(0, 0))))
	require.Zero(t, heldBytes(reflect.ValueOf((*string)(nil))))
}
