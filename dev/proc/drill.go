package proc

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
)

// Drill is a test or a command that prints its steps.
type Drill struct {
	testing.TB
	Out io.Writer
}

// Printf prints a line.
func (d Drill) Printf(format string, args ...any) { fmt.Fprintf(d.Out, format+"\n", args...) }

// Main runs a drill as the command with the name. An interrupt cancels the context of the drill. If the drill
// fails, Main prints the failures and exits with status 1.
func Main(name string, drill func(testing.TB)) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := Run(ctx, drill); err != nil {
		fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(1)
	}
}

// Number returns the number in an environment variable, or otherwise if the variable is not set.
func Number(t testing.TB, variable string, otherwise int) int {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	require.NoError(t, err, variable)
	return n
}

// Fresh is New with a new database and with the Temporal server of the test run.
func Fresh(t testing.TB, config Config) *System {
	t.Helper()
	config.TemporalAddress = os.Getenv("TEST_TEMPORAL_ADDRESS")
	require.NotEmpty(t, config.TemporalAddress, "TEST_TEMPORAL_ADDRESS is not set: run the drill with make, or with dev/up test")
	config.DatabaseURL = dbtest.Empty(t, dbtest.ServerURL(t)) // New migrates it
	return New(t, config)
}

// Serve starts an HTTP server, which runs until the test ends, and returns its URL.
func Serve(t testing.TB, handler http.Handler) (url string) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// Dial returns a client of the API at the URL that sends the key.
func Dial(t testing.TB, url, key string) *client.ClientWithResponses {
	t.Helper()
	c, err := client.NewClientWithResponses(url, client.WithRequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer "+key)
		return nil
	}))
	require.NoError(t, err)
	return c
}

// connections are shared by all calls. Drills send many calls at once.
var connections = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}

// Call sends a request and returns the status and the body of the answer. The key may be empty. headers are
// alternating names and values.
func Call(ctx context.Context, method, url, key, body string, headers ...string) (status int, answer []byte, err error) {
	request, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Authorization", "Bearer "+key)
	}
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := connections.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	answer, err = io.ReadAll(response.Body)
	return response.StatusCode, answer, err
}
