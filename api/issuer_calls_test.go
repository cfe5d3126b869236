package api

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// openAnswers responds to each call with a body that the caller has to close.
type openAnswers struct{}

func (openAnswers) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{Body: io.NopCloser(strings.NewReader(""))}, nil
}

// TestTenantAndHostGetHalfOfIssuerCallsEach fills the calls of a tenant at several hosts, and the calls to a host by
// several tenants.
func TestTenantAndHostGetHalfOfIssuerCallsEach(t *testing.T) {
	t.Parallel()
	all := newIssuers(&http.Client{Transport: openAnswers{}})
	var open []io.Closer
	call := func(tenant metering.TenantID, host string) error {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host, http.NoBody)
		require.NoError(t, err)
		response, err := all.clientOf(tenant).Transport.RoundTrip(request)
		if err == nil {
			open = append(open, response.Body)
		}
		return err
	}
	for n := range maxIssuerCalls / 2 {
		require.NoError(t, call(1, fmt.Sprintf("slow%d.example.com", n%4)))
	}
	require.ErrorContains(t, call(1, "other.example.com"), "too many calls of ten_1 to issuers are in progress")
	require.NoError(t, call(2, "other.example.com"))
	for _, body := range open {
		require.NoError(t, body.Close())
	}
	open = nil
	for n := range maxIssuerCalls / 2 {
		require.NoError(t, call(metering.TenantID(n%8), "slow.example.com"))
	}
	require.ErrorContains(t, call(9, "slow.example.com"), "too many calls to slow.example.com are in progress")
	require.NoError(t, call(9, "other.example.com"))
}
