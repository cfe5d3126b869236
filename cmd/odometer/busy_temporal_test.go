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

// busy is a proxy to Temporal that forwards each request. If a request has a request ID, busy answers its first attempt
// with DeadlineExceeded. A client that does not repeat such a request never gets the result.
type busy struct {
	mu      sync.Mutex
	gaveUp  map[string]bool // by request ID
	address string
}

// newBusy starts the proxy in front of a Temporal server.
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

// answer forwards a request, and replaces the answer with DeadlineExceeded if givesUp returns true.
func (b *busy) answer(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	answer, err := handle(ctx, request)
	change, ok := request.(interface{ GetRequestId() string })
	if err != nil || !ok || !b.givesUp(change.GetRequestId()) {
		return answer, err
	}
	return nil, status.Error(codes.DeadlineExceeded, "context deadline exceeded")
}

// givesUp reports whether this is the first attempt of the request.
func (b *busy) givesUp(requestID string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	again := b.gaveUp[requestID]
	b.gaveUp[requestID] = true
	return !again
}

func TestTemporalRequestIsRepeatedAfterDeadlineExceeded(t *testing.T) {
	t.Parallel()
	_, database := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: database, TemporalAddress: temporalAddress(t)})
	_, key := system.Tenant(t)
	temporal := newBusy(t, temporalAddress(t))
	r := &replicas{T: t, apis: []*proc.Process{system.With("TEMPORAL_ADDRESS=" + temporal.address).API(t)}, key: key}
	system.Worker(t)
	hook, secret := newReceiver(t)
	r.must("POST", "/v1/meters", `{"slug":"calls","event_type":"call"}`)
	r.must("POST", "/v1/events", `{"event_type":"call","customer_id":"acme","value":1}`)
	r.must("PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q,"secret":%q}`, hook.URL, secret))
	r.must("POST", "/v1/billing/sync", `{"customer_external_id":"acme"}`)
	syncs := strings.Count(r.must("GET", "/v1/billing/syncs", ""), `"trigger":"manual"`)
	temporal.mu.Lock()
	defer temporal.mu.Unlock()
	require.Positive(t, syncs)
	require.LessOrEqual(t, syncs, len(temporal.gaveUp), "asking again began a second one")
}
