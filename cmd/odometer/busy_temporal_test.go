package main_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.temporal.io/api/proxy"
	"go.temporal.io/api/workflowservice/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// busy is Temporal behind a server that gives up on the first call of each
// method, after Temporal has done what was asked.
type busy struct {
	mu      sync.Mutex
	gaveUp  map[string]bool
	address string
}

func newBusy(t *testing.T, temporal string) *busy {
	t.Helper()
	conn, err := grpc.NewClient(temporal, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	service, err := proxy.NewWorkflowServiceProxyServer(proxy.WorkflowServiceProxyOptions{Client: workflowservice.NewWorkflowServiceClient(conn)})
	require.NoError(t, err)
	b := &busy{gaveUp: make(map[string]bool)}
	server := grpc.NewServer(grpc.UnaryInterceptor(b.answer))
	workflowservice.RegisterWorkflowServiceServer(server, service)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	go server.Serve(listener)
	t.Cleanup(server.Stop)
	b.address = listener.Addr().String()
	return b
}

func (b *busy) answer(ctx context.Context, request any, method *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	again := b.asked(method.FullMethod)
	if answer, err := handle(ctx, request); err != nil || again {
		return answer, err
	}
	return nil, status.Error(codes.DeadlineExceeded, "context deadline exceeded")
}

// asked says whether the method was called before, and notes that it was.
func (b *busy) asked(method string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := b.gaveUp[method]
	b.gaveUp[method] = true
	return before
}

func TestATemporalThatGivesUpIsAskedAgain(t *testing.T) {
	t.Parallel()
	_, database := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: database, TemporalAddress: temporalAddress(t)})
	_, key := system.Tenant(t)
	temporal := newBusy(t, temporalAddress(t))
	api := system.With("TEMPORAL_ADDRESS=" + temporal.address).API(t)
	system.Worker(t)
	hook, secret := newReceiver(t)
	for _, request := range []struct{ method, path, body string }{
		{"POST", "/v1/meters", `{"slug":"calls","event_type":"call"}`},
		{"POST", "/v1/events", `{"event_type":"call","customer_id":"acme","value":1}`},
		{"PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q,"secret":%q}`, hook.URL, secret)},
		{"POST", "/v1/billing/sync", `{"customer_external_id":"acme"}`},
		{"PUT", "/v1/billing/auto-sync", `{"enabled":true,"schedule":"hourly"}`},
	} {
		status, text := call(t, request.method, api.URL+request.path, key, request.body)
		require.Less(t, status, 300, "%s %s: %s", request.method, request.path, text)
	}
	for _, method := range []string{"SignalWithStartWorkflowExecution", "CreateSchedule"} {
		require.True(t, temporal.asked("/temporal.api.workflowservice.v1.WorkflowService/"+method), method)
	}
	_, syncs := call(t, "GET", api.URL+"/v1/billing/syncs", key, "")
	require.Equal(t, 1, strings.Count(syncs, `"trigger":"manual"`), syncs)
}
