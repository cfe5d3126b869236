package main_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

func TestHeadersAreAtMost16KB(t *testing.T) {
	t.Parallel()
	_, url := dbtest.Fresh(t)
	api := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable}).API(t)
	for bytes, want := range map[int]int{15 << 10: http.StatusOK, 16 << 10: http.StatusRequestHeaderFieldsTooLarge} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, api.URL+"/healthz", nil)
		require.NoError(t, err)
		request.Header.Set("X-Padding", strings.Repeat("x", bytes))
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		response.Body.Close()
		require.Equal(t, want, response.StatusCode, "%d bytes", bytes)
	}
}

// TestDrillUnauthenticatedConnectionsAreBounded opens more connections than an API keeps open, directly and from a
// trusted proxy. Meanwhile, a client with a key gets an answer, also on a connection that was open before.
func TestDrillUnauthenticatedConnectionsAreBounded(t *testing.T) {
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: unreachable})
	_, key := system.Tenant(t)
	header := "GET /healthz HTTP/1.1\r\nHost: odometer\r\nX-Padding: " + strings.Repeat("x", 60<<10)
	for name, api := range map[string]*proc.Process{
		"direct": system.API(t), "behind a proxy": system.With("TRUSTED_PROXIES=127.0.0.0/8").API(t),
	} {
		t.Run(name, func(t *testing.T) {
			flood := func(attack string, connections int, open func(net.Conn)) {
				for n := range connections {
					conn, err := net.Dial("tcp", api.Address)
					require.NoError(t, err, "%s %d", attack, n)
					t.Cleanup(func() { conn.Close() })
					open(conn)
				}
				status, body := call(t, "POST", api.URL+"/v1/events", key, event("acme"))
				require.Equal(t, http.StatusOK, status, "%s: %s", attack, body)
				requireMemory(t, api, proc.MostOfAPI, attack)
			}
			flood("unfinished headers", 4000, func(conn net.Conn) {
				_ = conn.SetWriteDeadline(time.Now().Add(dbtest.Deadline))
				_, _ = io.WriteString(conn, header) // the API may close the connection earlier
			})
			flood("idle connections", 4000, func(conn net.Conn) {
				_ = conn.SetDeadline(time.Now().Add(dbtest.Deadline))
				_, _ = io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: odometer\r\n\r\n")
				response, err := http.ReadResponse(bufio.NewReader(conn), nil)
				require.NoError(t, err)
				response.Body.Close()
			})
			flood("bodies that do not arrive", 3000, func(conn net.Conn) {
				_, _ = fmt.Fprintf(conn, "POST /v1/auth/login HTTP/1.1\r\nHost: odometer\r\nContent-Type: application/json\r\nContent-Length: 8000\r\n\r\n{")
			})
		})
	}
}
