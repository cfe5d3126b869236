package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.temporal.io/api/workflowservice/v1"
	"go.temporal.io/sdk/client"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// bench is a database with the API processes that use it, and the tenant of the measurements.
type bench struct {
	coalesced, uncoalesced string // HOST:PORT; uncoalesced uses one transaction per request
	key                    string
	copyTenant             int64 // tenant of COPY's rows, which does not exist, so that the totals of real tenants stay correct
	conn                   *pgx.Conn
	pool                   *pgxpool.Pool
	processes              []*exec.Cmd
	database, binary       string
	environment            []string
	secret                 string // ODOMETER_SECRET
}

const startTimeout = 30 * time.Second

// open creates a database and starts an API process that uses it.
func open(ctx context.Context, binary string) (*bench, error) {
	server := os.Getenv("TEST_DATABASE_URL")
	if server == "" {
		return nil, errors.New("TEST_DATABASE_URL is not set: run make bench")
	}
	b := &bench{copyTenant: 1 << 40, binary: binary, secret: random()}
	var err error
	if b.database, err = createDatabase(ctx, server); err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	if err := b.start(ctx); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

// build builds the binary in a folder and returns its path.
func build(ctx context.Context, folder string) (string, error) {
	binary := filepath.Join(folder, "odometer")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/odometer").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build odometer: %w: %s", err, out)
	}
	return binary, nil
}

var databases int

func createDatabase(ctx context.Context, server string) (string, error) {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	databases++
	name := fmt.Sprintf("bench_%d_%d", os.Getpid(), databases)
	if _, err := conn.Exec(ctx, "create database "+name); err != nil {
		return "", err
	}
	address, err := url.Parse(server)
	if err != nil {
		return "", err
	}
	address.Path = "/" + name
	return address.String(), nil
}

func (b *bench) start(ctx context.Context) error {
	b.environment = append(os.Environ(), "DATABASE_URL="+b.database, "LOG_LEVEL=warn", "ALLOW_LOOPBACK_WEBHOOKS=true",
		"ODOMETER_SECRET="+b.secret, "ODOMETER_ENCRYPTION_KEYS=bench:"+random())
	if temporal := os.Getenv("TEST_TEMPORAL_ADDRESS"); temporal != "" {
		namespace, err := makeNamespace(ctx, temporal)
		if err != nil {
			return fmt.Errorf("make Temporal namespace: %w", err)
		}
		b.environment = append(b.environment, "TEMPORAL_ADDRESS="+temporal, "TEMPORAL_NAMESPACE="+namespace)
	}
	if out, err := command(ctx, b.environment, b.binary, "migrate").CombinedOutput(); err != nil {
		return fmt.Errorf("migrate: %w: %s", err, out)
	}
	var tenant struct {
		Key string `json:"admin_key"`
	}
	out, err := command(ctx, b.environment, b.binary, "tenant", "create", "--name", "bench", "--json").Output()
	if err != nil {
		return fmt.Errorf("create tenant: %w", err)
	}
	if err := json.Unmarshal(out, &tenant); err != nil {
		return fmt.Errorf("create tenant: %w", err)
	}
	b.key = tenant.Key
	if b.pool, err = pgxpool.New(ctx, b.database); err != nil {
		return err
	}
	if b.conn, err = pgx.Connect(ctx, b.database); err != nil {
		return err
	}
	// Rate limits must not affect the measurements.
	if _, err := b.pool.Exec(ctx, `update tenants set requests_per_minute = 1000000000`); err != nil {
		return err
	}
	b.coalesced, err = b.serve(ctx, "api", append(b.environment, "CALLS_PER_MINUTE=1000000000", "MAX_REQUESTS_PER_MINUTE=1000000000"))
	return err
}

// makeNamespace creates a Temporal namespace for the runs of one database.
func makeNamespace(ctx context.Context, temporal string) (string, error) {
	registrar, err := client.NewNamespaceClient(client.Options{HostPort: temporal})
	if err != nil {
		return "", err
	}
	defer registrar.Close()
	name := fmt.Sprintf("bench-%d-%d", os.Getpid(), databases)
	return name, registrar.Register(ctx, &workflowservice.RegisterNamespaceRequest{
		Namespace: name, WorkflowExecutionRetentionPeriod: durationpb.New(24 * time.Hour),
	})
}

// withoutCoalescing starts a second API process that uses one transaction per request.
func (b *bench) withoutCoalescing(ctx context.Context) (err error) {
	b.uncoalesced, err = b.serve(ctx, "api", append(b.environment, "DATABASE_URL="+withConnections(b.database, "64"), "INGEST_GROUP_EVENTS=1", "INGEST_LANES=64"))
	return err
}

// withConnections limits the connection pool of programs that open the URL.
func withConnections(address, most string) string {
	u, err := url.Parse(address)
	if err != nil {
		return address
	}
	query := u.Query()
	query.Set("pool_max_conns", most)
	u.RawQuery = query.Encode()
	return u.String()
}

func command(ctx context.Context, environment []string, binary string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = environment
	return cmd
}

func random() string {
	var b [32]byte
	rand.Read(b[:]) // never returns an error
	return base64.StdEncoding.EncodeToString(b[:])
}

// serve starts a process on a free port, waits until it answers, and returns its address.
func (b *bench) serve(ctx context.Context, role string, environment []string) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address := listener.Addr().String()
	listener.Close()
	variable, ready := "LISTEN_ADDRESS", "/healthz"
	if role == "worker" {
		variable, ready = "METRICS_ADDRESS", "/readyz"
	}
	cmd := command(ctx, append(environment, variable+"="+address), b.binary, role)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", err
	}
	b.processes = append(b.processes, cmd)
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		response, err := http.Get("http://" + address + ready)
		if err != nil {
			continue
		}
		response.Body.Close()
		if response.StatusCode == http.StatusOK {
			return address, nil
		}
	}
	return "", fmt.Errorf("the %s did not start", role)
}

// startWorker starts a worker with workConnections database connections.
func (b *bench) startWorker(ctx context.Context) error {
	_, err := b.serve(ctx, "worker", append(b.environment, "DATABASE_URL="+withConnections(b.database, workConnections)))
	return err
}

// createTenants creates tenants directly in the database and returns their admin keys.
func (b *bench) createTenants(ctx context.Context, n int) (keys []string, err error) {
	secret, err := base64.StdEncoding.DecodeString(b.secret)
	if err != nil {
		return nil, err
	}
	store, err := db.Open(ctx, b.database, secret, nil)
	if err != nil {
		return nil, err
	}
	defer store.Close()
	maker, err := api.NewKeys("svc", secret)
	if err != nil {
		return nil, err
	}
	for i := range n {
		tenant, err := store.Tenants.Create(ctx, metering.Operator, metering.Tenant{
			Name: fmt.Sprintf("bench %d", i), Timezone: "UTC", Currency: "USD", RequestsPerMinute: 1_000_000_000,
		})
		if err != nil {
			return nil, err
		}
		key, record := maker.Make(metering.ScopeAdmin)
		record.Name = "bench"
		if _, err := store.Credentials.Create(ctx, tenant.ID, metering.Operator, metering.APIKeyCredential, record, time.Now()); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, nil
}

func (b *bench) createMeter(slug, eventType string, groupBy ...string) error {
	return b.createMeterOf(b.key, slug, eventType, groupBy...)
}

func (b *bench) createMeterOf(key, slug, eventType string, groupBy ...string) error {
	body, err := json.Marshal(map[string]any{"slug": slug, "event_type": eventType, "aggregation": "sum", "group_by": groupBy})
	if err != nil {
		return err
	}
	if err := b.callAs(key, http.MethodPost, "/v1/meters", string(body), http.StatusCreated, nil); err != nil {
		return fmt.Errorf("create meter: %w", err)
	}
	return nil
}

// call sends a request, requires the status, and decodes the answer unless it is nil.
func (b *bench) call(method, path, body string, status int, answer any) error {
	return b.callAs(b.key, method, path, body, status, answer)
}

func (b *bench) callAs(key, method, path, body string, status int, answer any) error {
	request, err := http.NewRequest(method, "http://"+b.coalesced+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != status {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<10)) // as much as can be read
		return fmt.Errorf("the API answered %s: %s", response.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func (b *bench) close() {
	for _, p := range b.processes {
		_ = p.Process.Kill() // the database of this run is not used again
		_ = p.Wait()
	}
	if b.pool != nil {
		b.pool.Close()
	}
}
