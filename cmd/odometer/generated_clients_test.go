package main_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// repeating is a transport that repeats the request for a sync while the status is 202, because the API waits only
// 25 seconds for a sync to end.
type repeating struct{}

func (repeating) RoundTrip(request *http.Request) (*http.Response, error) {
	if !strings.HasSuffix(request.URL.Path, "/billing/sync") {
		return http.DefaultTransport.RoundTrip(request)
	}
	body, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	for {
		again := request.Clone(request.Context())
		again.Body = io.NopCloser(bytes.NewReader(body))
		response, err := http.DefaultTransport.RoundTrip(again)
		if err != nil || response.StatusCode != http.StatusAccepted {
			return response, err
		}
		response.Body.Close()
	}
}

// newer returns a proxy that stands for a later version of the service. It adds a field that no document names
// to the first object of each JSON answer.
func newer(t *testing.T, service string) *httptest.Server {
	t.Helper()
	address, err := url.Parse(service)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(address)
	proxy.Transport = repeating{}
	proxy.ModifyResponse = func(response *http.Response) error {
		if !strings.HasSuffix(response.Header.Get("Content-Type"), "json") {
			return nil
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err
		}
		body = bytes.Replace(body, []byte("{"), []byte(`{"added_later":{"by":"a later version"},`), 1)
		response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		response.Header.Del("Content-Length")
		return nil
	}
	server := httptest.NewServer(proxy)
	t.Cleanup(server.Close)
	return server
}

// TestDrillGeneratedClientsReadEveryDigit generates SDKs from the OpenAPI document with common generators, and
// compiles a program with each SDK. The program sends events, reads the total and syncs.
func TestDrillGeneratedClientsReadEveryDigit(t *testing.T) {
	_, database := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: database, TemporalAddress: temporalAddress(t)})
	_, key := system.Tenant(t)
	service := system.API(t).URL
	system.Worker(t)
	hook, secret := newReceiver(t)
	status, body := call(t, "PUT", service+"/v1/billing/provider", key, fmt.Sprintf(`{"type":"webhook","url":%q,"secret":%q}`, hook.URL, secret))
	require.Equal(t, 200, status, body)
	status, body = call(t, "POST", service+"/v1/meters", key, `{"slug":"calls","event_type":"call"}`)
	require.Equal(t, 201, status, body)
	document := filepath.Join(t.TempDir(), "openapi-strings.json")
	require.NoError(t, os.WriteFile(document, []byte(system.Run(t, "openapi", "-strings")), 0o600))

	for _, generator := range []string{"oapi-codegen", "openapi-generator-go", "openapi-generator-java", "openapi-typescript", "openapi-python-client"} {
		t.Run(generator, func(t *testing.T) {
			command := exec.CommandContext(t.Context(), "../../dev/sdks/run", generator, document, t.TempDir())
			command.Env = append(os.Environ(), "ODOMETER_URL="+newer(t, service).URL, "ODOMETER_API_KEY="+key, "CUSTOMER="+generator)
			var out, log bytes.Buffer
			command.Stdout, command.Stderr = &out, &log
			require.NoError(t, command.Run(), "%s%s", out.String(), log.String())
			require.Equal(t, generator+" 1335549.47 1335549.47 succeeded\n", out.String(), log.String())
		})
	}
}
