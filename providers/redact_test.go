package providers_test

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/providers"
)

// TestRedactedErrorContainsNoHostOrResponseText checks the redacted text of each kind of failed call. It names no host
// and contains no text of the response.
func TestRedactedErrorContainsNoHostOrResponseText(t *testing.T) {
	t.Parallel()
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		connection, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			connection.Close()
		}
	}))
	defer cut.Close()
	slow := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer slow.Close()
	untrusted := httptest.NewUnstartedServer(http.NotFoundHandler())
	untrusted.Config.ErrorLog = log.New(io.Discard, "", 0)
	untrusted.StartTLS()
	defer untrusted.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()
	hasty, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	given, giveUp := context.WithCancel(t.Context())
	giveUp()
	for name, c := range map[string]struct {
		ctx       context.Context
		url, text string
	}{
		"refused":   {t.Context(), closed.URL, "connection refused"},
		"cut":       {t.Context(), cut.URL, "the connection closed before the response"},
		"slow":      {hasty, slow.URL, "the call timed out"},
		"given up":  {given, slow.URL, "the call was canceled"},
		"untrusted": {t.Context(), untrusted.URL, "the host's certificate could not be verified"},
		"plain":     {t.Context(), strings.Replace(cut.URL, "http:", "https:", 1), "the host does not use TLS"},
		"private":   {t.Context(), "http://10.1.2.3/canary", "the address is not on the public internet"},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(c.ctx, http.MethodGet, c.url, nil)
			require.NoError(t, err)
			_, err = providers.Guard{AllowLoopback: true}.Client(time.Minute).Do(request)
			require.Error(t, err)
			quiet := providers.Redact(err)
			require.Equal(t, c.text, quiet.Error())
			require.NotContains(t, quiet.Error(), request.URL.Host)
			var call *url.Error
			require.ErrorAs(t, quiet, &call)
		})
	}
	require.Equal(t, "the host does not exist", providers.Redact(&net.DNSError{Name: "canary.example", IsNotFound: true}).Error())
	require.Equal(t, "the lookup of the host's name failed", providers.Redact(&net.DNSError{Name: "canary.example"}).Error())
	require.Equal(t, "the call failed (*errors.errorString)", providers.Redact(errors.New("404 Not Found: canary")).Error())
}
