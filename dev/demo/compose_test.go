package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// root is the root of the repository.
const root = "../.."

// loadCompose reads docker-compose.yml as strictly as Docker does.
func loadCompose(t testing.TB, environment ...string) *types.Project {
	t.Helper()
	options, err := cli.NewProjectOptions([]string{filepath.Join(root, "docker-compose.yml")}, cli.WithEnv(environment))
	require.NoError(t, err)
	project, err := options.LoadProject(t.Context())
	require.NoError(t, err)
	return project
}

// pinned matches an image with a version.
var pinned = regexp.MustCompile(`:[0-9]+\.[0-9][\w.-]*$`)

func TestComposeEveryImageIsPinned(t *testing.T) {
	for _, service := range loadCompose(t).Services {
		if service.Build == nil {
			require.Regexp(t, pinned, service.Image)
		}
	}
	for _, from := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(read(t, "Dockerfile"), -1) {
		if from[1] != "scratch" {
			require.Regexp(t, pinned, from[1])
		}
	}
}

func TestComposePublishesPortsOnlyOnLocalhost(t *testing.T) {
	published := make(map[string]string)
	for _, service := range loadCompose(t).Services {
		for _, port := range service.Ports {
			require.Equal(t, "127.0.0.1", port.HostIP, service.Name)
			require.NotContains(t, published, port.Published)
			published[port.Published] = service.Name
		}
	}
	require.Equal(t, map[string]string{
		"8080": "api", "8090": "api", "8091": "api", "7233": "temporal", "8233": "temporal-ui", "54320": "timescaledb",
	}, published)
}

func TestComposeUsesNoHostVariablesFilesOrFolders(t *testing.T) {
	for _, service := range loadCompose(t).Services {
		for name, value := range service.Environment {
			require.NotNil(t, value, "%s of %s", name, service.Name)
		}
		require.Empty(t, service.EnvFiles)
		for _, volume := range service.Volumes {
			require.Equal(t, types.VolumeTypeVolume, volume.Type, service.Name)
		}
	}
}

// TestEachEnvironmentVariableIsDocumented checks that the configuration page documents each variable in the usage
// text of the binary. It also checks that compose sets no other variables for the services of Odometer.
func TestEachEnvironmentVariableIsDocumented(t *testing.T) {
	usage := read(t, "cmd/odometer/main.go")
	known := make(map[string]bool)
	for _, name := range regexp.MustCompile(`(?m)^  ([A-Z_]+…?) `).FindAllStringSubmatch(usage, -1) {
		known[name[1]] = true
		require.Contains(t, read(t, "docs/operating/configuration.md"), "| `"+name[1]+"` |")
	}
	require.Greater(t, len(known), 10)
	for _, service := range []string{"migrate", "temporal-prepare", "api", "worker"} {
		for name := range loadCompose(t).Services[service].Environment {
			if strings.HasPrefix(name, "TEMPORAL_") {
				name = "TEMPORAL_…"
			}
			require.Contains(t, known, name, service)
		}
	}
}

// read returns the content of a file of the repository.
func read(t testing.TB, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

// composeRun starts the services that are built from this repository, as `docker compose up` does. Each service gets
// its command and only its environment variables, and starts after its dependencies. The test provides its own
// database and Temporal server.
type composeRun struct {
	testing.TB
	project *types.Project
	path    string            // folder of the binaries that buildAsDockerfile has built
	here    *strings.Replacer // replaces addresses and paths that differ without containers
	running map[string]*exec.Cmd
}

// startCompose starts the service demo after its dependencies, and waits until the demo has succeeded.
func startCompose(t testing.TB) *composeRun {
	t.Helper()
	temporal := os.Getenv("TEST_TEMPORAL_ADDRESS")
	if temporal == "" {
		t.Fatal("TEST_TEMPORAL_ADDRESS is not set: run make test, or dev/up test go test ./...")
	}
	namespace := proc.Namespace(t, temporal)
	_, database := dbtest.Fresh(t)
	h := &composeRun{
		TB: t, path: buildAsDockerfile(t), running: make(map[string]*exec.Cmd),
		project: loadCompose(t, "API_PORT="+freePort(t), "WORKER_PORT="+freePort(t), "RECEIVER_PORT="+freePort(t), "STRIPE_PORT="+freePort(t)),
	}
	written := func(service string) string { return *h.project.Services[service].Environment["DATABASE_URL"] }
	h.here = strings.NewReplacer(
		written("migrate"), database, written("api"), dbtest.As(t, database, dbtest.Roles.API), written("worker"), dbtest.As(t, database, dbtest.Roles.Worker),
		"temporal:7233", temporal, "/var/lib/odometer-demo", t.TempDir())
	for _, name := range []string{"temporal-prepare", "api", "worker"} {
		h.project.Services[name].Environment["TEMPORAL_NAMESPACE"] = &namespace
	}
	h.start("demo")
	h.awaitEnd("demo")
	return h
}

// buildAsDockerfile builds the binaries of the Dockerfile's go build commands into a temporary folder.
func buildAsDockerfile(t testing.TB) (folder string) {
	t.Helper()
	folder = t.TempDir()
	builds := regexp.MustCompile(`go build -ldflags="-s -w" -o /out/(\w+) (\S+)`).FindAllStringSubmatch(read(t, "Dockerfile"), -1)
	require.Len(t, builds, 4)
	for _, b := range builds {
		build := exec.Command("go", "build", "-buildvcs=false", "-o", filepath.Join(folder, b[1]), b[2])
		build.Dir = root
		out, err := build.CombinedOutput()
		require.NoError(t, err, string(out))
	}
	return folder
}

// freePort returns a port without a listener.
func freePort(t testing.TB) string {
	t.Helper()
	_, port, err := net.SplitHostPort(proc.FreeAddress(t))
	require.NoError(t, err)
	return port
}

// start starts a service once its dependencies meet the conditions of depends_on. It skips a service that is
// not built from this repository or has already been started.
func (h *composeRun) start(name string) {
	h.Helper()
	service, err := h.project.GetService(name)
	require.NoError(h, err)
	if service.Build == nil || h.running[name] != nil {
		return
	}
	for needed, how := range service.DependsOn {
		h.start(needed)
		switch how.Condition {
		case types.ServiceConditionCompletedSuccessfully:
			h.awaitEnd(needed)
		case types.ServiceConditionHealthy:
			h.awaitHealth(needed)
		}
	}
	process := h.command(h.Context(), service, service.Command)
	require.NoError(h, process.Start())
	h.running[name] = process
	h.Cleanup(func() { // the test's context has ended, which stops the process
		if process.ProcessState == nil {
			_ = process.Wait() // it is not a failure to be stopped
		}
		if h.Failed() {
			h.Logf("%s:\n%s", name, process.Stdout)
		}
	})
}

// command returns the process of a service that runs the words, with the addresses and paths of this machine.
func (h *composeRun) command(ctx context.Context, service types.ServiceConfig, words []string) *exec.Cmd {
	here := make([]string, len(words))
	for i, word := range words {
		here[i] = h.here.Replace(word)
	}
	_, found := os.Stat(filepath.Join(h.path, here[0]))
	if found == nil {
		here[0] = filepath.Join(h.path, here[0])
	}
	command := exec.CommandContext(ctx, here[0], here[1:]...)
	command.Env = []string{"PATH=" + h.path + ":" + os.Getenv("PATH")}
	for name, value := range service.Environment {
		command.Env = append(command.Env, name+"="+h.here.Replace(*value))
	}
	command.Stdout = new(bytes.Buffer)
	command.Stderr = command.Stdout
	command.WaitDelay = time.Minute
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	return command
}

// awaitEnd waits until a service's command has succeeded.
func (h *composeRun) awaitEnd(name string) {
	h.Helper()
	process := h.running[name]
	if process == nil { // an image that is not built here
		return
	}
	if process.ProcessState == nil {
		require.NoError(h, process.Wait(), name)
	}
	require.True(h, process.ProcessState.Success(), name)
}

// awaitHealth waits until a service's health check succeeds.
func (h *composeRun) awaitHealth(name string) {
	h.Helper()
	if h.running[name] == nil {
		return
	}
	service, err := h.project.GetService(name)
	require.NoError(h, err)
	require.Equal(h, "CMD", service.HealthCheck.Test[0])
	dbtest.Eventually(h, func() error {
		check := h.command(h.Context(), service, service.HealthCheck.Test[1:])
		if err := check.Run(); err != nil {
			return fmt.Errorf("%s: %w: %s", name, err, check.Stdout)
		}
		return nil
	})
}
