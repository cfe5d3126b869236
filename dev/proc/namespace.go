package proc

import (
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/worker"
)

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
	c, err := client.Dial(client.Options{HostPort: address, Namespace: name})
	if err != nil {
		t.Fatalf("temporal: %v", err)
	}
	defer c.Close()
	if _, _, err := worker.PrepareNamespace(t.Context(), c, name, shortestRetention); err != nil {
		t.Fatalf("prepare namespace: %v", err)
	}
	return name
}

// shortestRetention is the minimum that Temporal allows.
const shortestRetention = 24 * time.Hour

// BareNamespace creates a namespace like Namespace, but without search attributes.
func BareNamespace(t testing.TB, address string) string {
	t.Helper()
	conn, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return client.DefaultNamespace
	}
	conn.Close()
	registrar, err := client.NewNamespaceClient(client.Options{HostPort: address})
	if err != nil {
		t.Fatalf("temporal: %v", err)
	}
	defer registrar.Close()
	name := fmt.Sprintf("test-%d-%d", os.Getpid(), namespaces.Add(1))
	err = registrar.Register(t.Context(), &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(shortestRetention),
	})
	if err != nil {
		t.Fatalf("register namespace: %v", err)
	}
	awaitNamespace(t, address, name)
	return name
}

// awaitNamespace waits until the server knows the namespace.
func awaitNamespace(t testing.TB, address, name string) {
	t.Helper()
	dbtest.Eventually(t, func() error {
		c, err := client.Dial(client.Options{HostPort: address, Namespace: name})
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.CountWorkflow(t.Context(), &workflowservice.CountWorkflowExecutionsRequest{Namespace: name})
		return err
	})
}
