// Package proc runs the odometer binary for tests that need separate processes: to kill, restart, compare
// or measure them.
package proc

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	temporal "go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/db/dbtest"
)

// System is a set of processes on one database and one Temporal server.
type System struct {
	Namespace   string // of Temporal
	DatabaseURL string // of the owner

	binary   string
	temporal string // HOST:PORT
	env      []string
}

// Config configures a System. Env is added to the environment of its processes.
type Config struct {
	DatabaseURL     string // migrated by New
	TemporalAddress string // may be an address that does not answer
	Env             []string
	Clock           *Clock // nil: the processes read the machine's clock
}

// New builds the binary, once per test run and tags, and migrates the database.
func New(t testing.TB, config Config) *System {
	t.Helper()
	tags, env := "", config.Env
	if config.Clock != nil {
		tags, env = "drill", append([]string{"CLOCK_AHEAD_FILE=" + config.Clock.path, "DATABASE_CLOCK_FOLLOWS=true"}, env...)
	}
	s := &System{Namespace: Namespace(t, config.TemporalAddress), DatabaseURL: config.DatabaseURL, temporal: config.TemporalAddress, binary: build(t, tags)}
	s.env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(),
		"DATABASE_URL=" + config.DatabaseURL, "TEMPORAL_ADDRESS=" + config.TemporalAddress, "TEMPORAL_NAMESPACE=" + s.Namespace,
		"ODOMETER_SECRET=" + randomKey(), "ODOMETER_ENCRYPTION_KEYS=test:" + randomKey(), "ALLOW_LOOPBACK_WEBHOOKS=true",
		"MAX_REQUESTS_PER_MINUTE=" + strconv.Itoa(math.MaxInt32),
	}, env...)
	s.With("API_ROLE="+dbtest.Roles.API, "WORKER_ROLE="+dbtest.Roles.Worker).Run(t, "migrate")
	return s
}

// With returns the system with additional environment variables for the processes that it starts. Later
// values override earlier ones.
func (s *System) With(env ...string) *System {
	with := *s
	with.env = append(slices.Clip(s.env), env...)
	return &with
}

// Temporal returns a client for the system's namespace, which is open until the test ends.
func (s *System) Temporal(t testing.TB) temporal.Client { return Temporal(t, s.temporal, s.Namespace) }

// Conn returns a connection to the database as its owner, which is open until the test ends.
func (s *System) Conn(t testing.TB) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.DatabaseURL)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// randomKey returns 32 random bytes in base64.
func randomKey() string {
	var key [32]byte
	rand.Read(key[:])
	return base64.StdEncoding.EncodeToString(key[:])
}

// binaryFolder creates a folder for the binaries of this process.
var binaryFolder = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "odometer-test-*") })

// build returns the path of the binary. The first process of a test run builds it; the others reuse it.
func build(t testing.TB, tags string) string {
	t.Helper()
	in := os.Getenv("TEST_BINARIES") // dev/up test creates and removes this folder
	if in == "" {
		var err error
		if in, err = binaryFolder(); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(in, "odometer-"+tags)
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close() // also releases the lock
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatalf("lock %s: %v", path, err)
	}
	if _, err := os.Stat(path); err == nil {
		return path
	}
	command := exec.Command("go", "build", "-buildvcs=false", "-tags="+tags, "-o", path+".new", "github.com/odometer-metering/odometer/cmd/odometer")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("build odometer: %v\n%s", err, out)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// Run executes a command of the binary and returns its standard output.
func (s *System) Run(t testing.TB, args ...string) string {
	t.Helper()
	command := exec.Command(s.binary, args...)
	command.Env = s.env
	var stderr bytes.Buffer
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("odometer %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}

// Tenant creates a tenant without an effective rate limit, and returns its id and its admin key.
func (s *System) Tenant(t testing.TB) (id, key string) { return s.LimitedTenant(t, math.MaxInt32) }

// LimitedTenant creates a tenant with a limit on requests with events per minute.
func (s *System) LimitedTenant(t testing.TB, limit int) (id, key string) {
	t.Helper()
	var made struct {
		ID  string `json:"tenant_id"`
		Key string `json:"admin_key"`
	}
	if err := json.Unmarshal([]byte(s.Run(t, "tenant", "create", "--name", "Test", "--requests-per-minute", strconv.Itoa(limit), "--json")), &made); err != nil {
		t.Fatal(err)
	}
	return made.ID, made.Key
}

// Process is an API or worker process. It is killed at the end of the test.
type Process struct {
	Address    string // HOST:PORT of the process's HTTP server; unchanged by a restart
	URL        string // URL of Address
	MetricsURL string // URL of the process's metrics; a worker serves them at Address

	system  *System
	name    string // the binary's command
	log     *os.File
	command *exec.Cmd
	ended   chan struct{}
}

// API starts an api process and waits until it is ready.
func (s *System) API(t testing.TB) *Process {
	return s.start(t, "api", dbtest.Roles.API)
}

// Worker starts a worker process and waits until it is ready.
func (s *System) Worker(t testing.TB) *Process {
	return s.start(t, "worker", dbtest.Roles.Worker)
}

// start starts a process that connects to the database as the role.
func (s *System) start(t testing.TB, command, role string) *Process {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), command+".log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{Address: FreeAddress(t), name: command, log: log}
	p.URL = "http://" + p.Address
	metrics := p.Address
	if command != "worker" {
		metrics = FreeAddress(t)
	}
	p.MetricsURL = "http://" + metrics + "/metrics"
	p.system = s.With("LISTEN_ADDRESS="+p.Address, "METRICS_ADDRESS="+metrics, "DATABASE_URL="+dbtest.As(t, s.DatabaseURL, role))
	t.Cleanup(func() {
		p.Kill(t)
		if t.Failed() {
			t.Logf("%s at %s:\n%s", command, p.Address, p.Log(t))
		}
		_ = log.Close()
	})
	p.Start(t)
	return p
}

// Ports that are not used for outgoing connections by default.
const (
	firstPort = 10_000
	lastPort  = 32_767
)

// FreeAddress returns a HOST:PORT without a listener. No outgoing connection can take its port before the
// caller listens.
func FreeAddress(t testing.TB) string {
	t.Helper()
	for {
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", firstPort+mathrand.IntN(lastPort-firstPort+1)))
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		return listener.Addr().String()
	}
}

// Start starts a process that was killed or stopped, at the same address.
func (p *Process) Start(t testing.TB) {
	t.Helper()
	p.command = exec.Command(p.system.binary, p.name)
	p.command.Env = p.system.env
	p.command.Stdout, p.command.Stderr = p.log, p.log
	if err := p.command.Start(); err != nil {
		t.Fatalf("start %s: %v", p.name, err)
	}
	ended := make(chan struct{})
	p.ended = ended
	go func(command *exec.Cmd) {
		_ = command.Wait() // being killed is not a failure
		close(ended)
	}(p.command)
	p.awaitReady(t)
}

// awaitReady waits until the process is ready, and fails if it ends before.
func (p *Process) awaitReady(t testing.TB) {
	t.Helper()
	dbtest.Eventually(t, func() error {
		select {
		case <-p.ended:
			t.Fatalf("%s has ended:\n%s", p.name, p.Log(t))
		default:
		}
		response, err := http.Get(p.URL + "/readyz")
		if err != nil {
			return fmt.Errorf("%s is not ready: %w", p.name, err)
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("/readyz of %s answers %d", p.name, response.StatusCode)
		}
		return nil
	})
}

// Kill ends the process at once, as a crash would.
func (p *Process) Kill(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGKILL)
	<-p.ended
}

// Stop sends SIGTERM and waits until the process has ended.
func (p *Process) Stop(t testing.TB) {
	t.Helper()
	p.signal(t, syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(dbtest.Deadline):
		t.Fatalf("%s does not stop:\n%s", p.name, p.Log(t))
	}
}

// signal sends a signal to the process, unless it has ended.
func (p *Process) signal(t testing.TB, signal os.Signal) {
	t.Helper()
	if err := p.command.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Fatalf("signal %s: %v", p.name, err)
	}
}

// Restart kills the process and starts it again at the same address.
func (p *Process) Restart(t testing.TB) {
	t.Helper()
	p.Kill(t)
	p.Start(t)
}

// Log returns the last bytes of the process's output.
func (p *Process) Log(t testing.TB) string {
	t.Helper()
	text := p.Output(t)
	return text[max(0, len(text)-logTail):]
}

// Output returns the output of the process, before and after restarts.
func (p *Process) Output(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile(p.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// logTail is the number of bytes of a log that a failed test prints.
const logTail = 8 << 10

// Maximum RSS of the processes in bytes, under any load.
const (
	MostOfAPI    = 150 << 20
	MostOfWorker = 256 << 20
)

// Memory returns the current and the peak RSS of the process, in bytes.
func (p *Process) Memory(t testing.TB) (now, peak int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.command.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	return kilobytes(t, status, "VmRSS:"), kilobytes(t, status, "VmHWM:")
}

// kilobytes returns a number of kilobytes in /proc/PID/status, in bytes.
func kilobytes(t testing.TB, status []byte, name string) int64 {
	t.Helper()
	for line := range strings.Lines(string(status)) {
		if figure, ok := strings.CutPrefix(line, name); ok {
			n, err := strconv.ParseInt(strings.Fields(figure)[0], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n << 10
		}
	}
	t.Fatalf("/proc has no %s", name)
	return 0
}
