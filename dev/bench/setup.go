package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
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
)

// bench is a database of its own, two API processes that differ in coalescing
// alone, and the tenant that they serve.
type bench struct {
	coalesced, uncoalesced string // HOST:PORT
	key                    string
	copyTenant             int64 // COPY's rows belong to nobody, so that no total is wrong
	conn                   *pgx.Conn
	pool                   *pgxpool.Pool
	processes              []*exec.Cmd
	folder                 string
}

const startTimeout = 30 * time.Second

func setUp(ctx context.Context) (*bench, error) {
	server := os.Getenv("TEST_DATABASE_URL")
	if server == "" {
		return nil, errors.New("TEST_DATABASE_URL is not set: run make bench")
	}
	b := &bench{copyTenant: 1 << 40}
	database, err := b.createDatabase(ctx, server)
	if err != nil {
		return nil, fmt.Errorf("create database: %w", err)
	}
	if b.folder, err = os.MkdirTemp("", "odometer-bench"); err != nil {
		return nil, err
	}
	if err := b.startServers(ctx, database); err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) createDatabase(ctx context.Context, server string) (string, error) {
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	name := fmt.Sprintf("bench_%d", os.Getpid())
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

func (b *bench) startServers(ctx context.Context, database string) error {
	binary := filepath.Join(b.folder, "odometer")
	if out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/odometer").CombinedOutput(); err != nil {
		return fmt.Errorf("build odometer: %w: %s", err, out)
	}
	environment := append(os.Environ(), "DATABASE_URL="+database, "LOG_LEVEL=warn",
		"ODOMETER_SECRET="+random(), "ODOMETER_ENCRYPTION_KEYS=bench:"+random())
	if out, err := command(ctx, environment, binary, "migrate").CombinedOutput(); err != nil {
		return fmt.Errorf("migrate: %w: %s", err, out)
	}
	var tenant struct {
		Key string `json:"admin_key"`
	}
	out, err := command(ctx, environment, binary, "tenant", "create", "--name", "bench", "--json").Output()
	if err != nil {
		return fmt.Errorf("create tenant: %w", err)
	}
	if err := json.Unmarshal(out, &tenant); err != nil {
		return fmt.Errorf("create tenant: %w", err)
	}
	b.key = tenant.Key
	if b.pool, err = pgxpool.New(ctx, database); err != nil {
		return err
	}
	if b.conn, err = pgx.Connect(ctx, database); err != nil {
		return err
	}
	// The rate limit is not what is measured.
	if _, err := b.pool.Exec(ctx, `update tenants set requests_per_minute = 1000000000`); err != nil {
		return err
	}
	if b.coalesced, err = b.serve(ctx, binary, environment); err != nil {
		return err
	}
	alone := append(environment, "DATABASE_URL="+withConnections(database, "64"), "INGEST_GROUP_EVENTS=1", "INGEST_LANES=64")
	b.uncoalesced, err = b.serve(ctx, binary, alone)
	return err
}

// withConnections bounds the pool of whoever opens the URL.
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
	rand.Read(b[:]) // never fails, or ends the program
	return base64.StdEncoding.EncodeToString(b[:])
}

// serve starts an API process on a free port and returns its address.
func (b *bench) serve(ctx context.Context, binary string, environment []string) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	address := listener.Addr().String()
	listener.Close()
	cmd := command(ctx, append(environment, "LISTEN_ADDRESS="+address), binary, "api")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return "", err
	}
	b.processes = append(b.processes, cmd)
	for deadline := time.Now().Add(startTimeout); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		response, err := http.Get("http://" + address + "/healthz")
		if err == nil {
			response.Body.Close()
			return address, nil
		}
	}
	return "", errors.New("the API did not start")
}

func (b *bench) createMeter(slug, eventType string, groupBy ...string) error {
	body, err := json.Marshal(map[string]any{"slug": slug, "event_type": eventType, "aggregation": "sum", "group_by": groupBy})
	if err != nil {
		return err
	}
	if err := b.call(http.MethodPost, "/v1/meters", string(body), http.StatusCreated, nil); err != nil {
		return fmt.Errorf("create meter: %w", err)
	}
	return nil
}

// call has the API answer with a status, and reads the answer where it is wanted.
func (b *bench) call(method, path, body string, status int, answer any) error {
	request, err := http.NewRequest(method, "http://"+b.coalesced+path, strings.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+b.key)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != status {
		return fmt.Errorf("the API answered %s", response.Status)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

func (b *bench) close() {
	for _, p := range b.processes {
		_ = p.Process.Kill() // nothing of this run is kept
		_ = p.Wait()
	}
	if b.pool != nil {
		b.pool.Close()
	}
	_ = os.RemoveAll(b.folder)
}
