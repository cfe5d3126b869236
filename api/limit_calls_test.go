package api_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/metering"
)

func TestCallsAreLimitedByCredentialAndByTenant(t *testing.T) {
	t.Parallel()
	b := setup(t).replica(t, func(d *api.Deps) { d.CallsPerMinute = 6 })
	others := setup(t)
	reader, s := b.newKey(t, metering.ScopeReadOnly), b.newSigner(t, metering.ScopeAdmin)
	call := func(headers ...string) answer { return b.send(t, "GET", "/v1/customers", "", headers...) }
	says := func(a answer, limit, remaining string) {
		t.Helper()
		require.Equal(t, []string{limit}, a.header.Values("X-RateLimit-Limit"))
		require.Equal(t, []string{remaining}, a.header.Values("X-RateLimit-Remaining"))
	}
	for left := 1; left >= 0; left-- { // the request that created the signer was also a call
		a := call()
		require.Equal(t, 200, a.status)
		says(a, "3", strconv.Itoa(left))
	}
	a := call()
	require.Contains(t, a.problem(t, 429, "rate_limited").Detail, "a credential may make 3 calls a minute")
	says(a, "3", "0")
	require.NotEmpty(t, a.header.Get("Retry-After"))
	event := b.send(t, "POST", "/v1/events", hello)
	require.Equal(t, 200, event.status, "events have a limit of their own")
	says(event, "1000", "999")

	says(call("Authorization: Bearer "+reader), "3", "2")
	says(call(s.sign("")...), "6", "1")
	says(call("Authorization: Bearer "+reader), "6", "0")
	a = call(s.sign("")...)
	require.Contains(t, a.problem(t, 429, "rate_limited").Detail, "the tenant may make 6 calls a minute")
	require.Equal(t, 200, others.send(t, "GET", "/v1/customers", "").status)

	b.ahead.Store(int64(time.Minute + time.Second))
	require.Equal(t, 200, call().status)
}
