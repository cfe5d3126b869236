package proc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.temporal.io/api/serviceerror"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/log"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/worker"
	"github.com/odometer-metering/odometer/workflows"
)

// Temporal returns a client that is open until the test ends. Its requests wait for a busy server until Deadline.
func Temporal(t testing.TB, address, namespace string) client.Client {
	t.Helper()
	c, err := client.Dial(options(address, namespace))
	if err != nil {
		t.Fatalf("temporal: %v", err)
	}
	t.Cleanup(c.Close)
	return c
}

// options returns the options of a client that waits for a busy server.
func options(address, namespace string) client.Options {
	return client.Options{
		HostPort: address, Namespace: namespace, Identity: "test", Logger: log.NewStructuredLogger(slog.New(slog.DiscardHandler)),
		ConnectionOptions: client.ConnectionOptions{DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(wait, workflows.AskAgain)}},
	}
}

// wait is a gRPC interceptor that replaces the deadline of a request, which the SDK sets to 10 seconds, by Deadline.
func wait(ctx context.Context, method string, request, answer any, conn *grpc.ClientConn, ask grpc.UnaryInvoker, options ...grpc.CallOption) error {
	longer, cancel := context.WithTimeout(context.WithoutCancel(ctx), dbtest.Deadline)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(ctx.Err(), context.Canceled) {
			cancel()
		}
	})()
	return ask(longer, method, request, answer, conn, options...)
}

// namespaces is the number of namespaces that this process has created.
var namespaces atomic.Int64

// Namespace creates a Temporal namespace for the test, with the search attributes that a worker needs.
// Tenant ids begin at 1 in every database, so tests in one namespace would share workflow ids. If Temporal
// does not answer, Namespace returns "default".
func Namespace(t testing.TB, address string) string {
	t.Helper()
	name := BareNamespace(t, address)
	if name == client.DefaultNamespace {
		return name
	}
	c := Temporal(t, address, name)
	dbtest.Eventually(t, func() error { // a busy server may not know the search attributes in time
		_, _, err := worker.PrepareNamespace(t.Context(), c, name, shortestRetention)
		return err
	})
	return name
}

// shortestRetention is the minimum that Temporal allows.
const shortestRetention = 24 * time.Hour

// BareNamespace creates a namespace like Namespace, but without search attributes.
func BareNamespace(t testing.TB, address string) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, dbtest.Deadline)
	if err != nil {
		return client.DefaultNamespace
	}
	conn.Close()
	registrar, err := client.NewNamespaceClient(options(address, ""))
	if err != nil {
		t.Fatalf("temporal: %v", err)
	}
	defer registrar.Close()
	name := fmt.Sprintf("test-%d-%d", os.Getpid(), namespaces.Add(1))
	err = registrar.Register(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(shortestRetention),
	})
	var registered *serviceerror.NamespaceAlreadyExists // by an earlier request without an answer
	if err != nil && !errors.As(err, &registered) {
		t.Fatalf("register namespace: %v", err)
	}
	awaitNamespace(t, address, name)
	return name
}

// awaitNamespace waits until the server knows the namespace.
func awaitNamespace(t testing.TB, address, name string) {
	t.Helper()
	dbtest.Eventually(t, func() error {
		c, err := client.Dial(options(address, name))
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Namespace: name})
		return err
	})
}
