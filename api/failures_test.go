package api_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/metering"
)

// strict returns a replica that accepts this number of invalid credentials per minute from an address. The replica
// trusts local proxies, so that a test can choose addresses.
func (b *bundle) strict(t *testing.T, failures int) *bundle {
	t.Helper()
	return b.replica(t, func(d *api.Deps) {
		d.FailuresPerMinute = failures
		d.TrustedProxies = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
	})
}

// forwardedFor returns the header for a request from this address.
func forwardedFor(address string) string { return "X-Forwarded-For: " + address }

func TestAddressWithTooManyInvalidCredentialsIsRateLimited(t *testing.T) {
	t.Parallel()
	b := setup(t).strict(t, 5)
	s := b.newSigner(t, metering.ScopeAdmin)
	known, fresh := forwardedFor("192.0.2.1"), b.newKey(t, metering.ScopeAdmin)
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", known).status)
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", append(s.sign(""), known)...).status)
	for i := range 5 {
		b.send(t, "GET", "/v1/meters", "", known, fmt.Sprintf("Authorization: Bearer guess-%d", i)).problem(t, 401, "unauthorized")
	}
	for _, guess := range []string{"Authorization: Bearer guess", "Authorization: ", "Authorization: Bearer " + fresh} {
		a := b.send(t, "GET", "/v1/meters", "", known, guess)
		a.problem(t, 429, "rate_limited")
		require.Equal(t, "60", a.header.Get("Retry-After"))
	}
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", known).status, "what was valid there before goes on")
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", append(s.sign(""), known)...).status)
	b.send(t, "GET", "/v1/meters", "", append(s.sign("another body"), known)...).problem(t, 429, "rate_limited")
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", forwardedFor("192.0.2.2")).status, "other addresses are not touched")
	require.Equal(t, 200, b.send(t, "GET", "/healthz", "", known).status)

	b.ahead.Store(int64(61 * time.Second))
	require.Equal(t, 200, b.send(t, "GET", "/v1/meters", "", known, "Authorization: Bearer "+fresh).status)
	b.send(t, "GET", "/v1/meters", "", known, "Authorization: Bearer guess").problem(t, 401, "unauthorized")
}

func TestClientAddressIsNearestUntrustedAddress(t *testing.T) {
	t.Parallel()
	b := setup(t).strict(t, 1)
	fail := func(forwarded string) int {
		return b.send(t, "GET", "/v1/meters", "", "Authorization: Bearer guess", forwardedFor(forwarded)).status
	}
	require.Equal(t, 401, fail("192.0.2.1"))
	for _, same := range []string{"192.0.2.1", "198.51.100.7, 192.0.2.1", "192.0.2.1, 10.1.2.3", "198.51.100.8,192.0.2.1 , 10.1.2.3,10.9.9.9", "::ffff:192.0.2.1"} {
		require.Equal(t, 429, fail(same), same)
	}
	require.Equal(t, 401, fail("2001:db8:1:2::1"))
	require.Equal(t, 429, fail("2001:db8:1:2:ffff::9"))
	require.Equal(t, 429, fail("2001:db8:1:ff::1"), "a /56 is one customer's")
	require.Equal(t, 401, fail("2001:db8:1:100::1"))
	require.Equal(t, 401, fail("not an address"))
	require.Equal(t, 429, fail("nonsense"), "whoever sends no address is the proxy")

	distrustful := setup(t).replica(t, func(d *api.Deps) { d.FailuresPerMinute = 1 })
	for i, want := range []int{401, 429} {
		a := distrustful.send(t, "GET", "/v1/meters", "", "Authorization: Bearer guess", forwardedFor(fmt.Sprintf("192.0.2.%d", i)))
		require.Equal(t, want, a.status)
	}
}
