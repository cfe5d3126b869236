package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/contrib/envconfig"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/registry"
)

const chart = "../../deploy/helm/odometer"

// smallest contains the values that an installation must set, and everything enables each part of the chart.
const (
	smallest = `
image: { repository: registry.example.com/odometer, tag: 0.1.0 }
baseURL: https://odometer.example.com
temporal: { address: "odometer.a1b2c.tmprl.cloud:7233", namespace: odometer.a1b2c }
`
	everything = `
image: { digest: "sha256:` + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" + `", pullSecrets: [registry] }
database: { caSecret: odometer-database-ca }
temporal: { prepare: true, uiURL: "https://cloud.temporal.io", apiKey: { secret: temporal }, tls: { secret: temporal-tls, serverCA: true } }
redis: { secret: redis }
env: { EVENT_RETENTION: 400d, LOG_LEVEL: warn, TEMPORAL_TLS_SERVER_NAME: temporal }
api: { replicas: null, env: { LOG_LEVEL: debug, TRUSTED_PROXIES: "10.0.0.0/8,fd00::/8", CALLS_PER_MINUTE: "6000000" } }
worker: { replicas: 0, env: { GOMEMLIMIT: 200MiB } }
ingress: { enabled: true, className: nginx, tlsSecret: odometer-tls, annotations: { nginx.ingress.kubernetes.io/proxy-body-size: 9m } }
networkPolicy:
  enabled: true
  apiFrom: [{ namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: ingress-nginx } } }]
  metricsFrom: [{ namespaceSelector: { matchLabels: { kubernetes.io/metadata.name: monitoring } } }]
  egress: [{ ports: [{ port: 443 }, { port: 5432 }, { port: 7233 }] }]
serviceMonitor: { enabled: true, labels: { release: prometheus } }
console: { enabled: true }
podAnnotations: { example.com/team: billing }
nodeSelector: { kubernetes.io/arch: amd64 }
tolerations: [{ key: dedicated, operator: Exists }]
`
	closed = `networkPolicy: { enabled: true }`
)

// object contains the fields of a Kubernetes object that the tests check.
type object struct {
	Kind     string
	Metadata struct {
		Name        string
		Labels      map[string]string
		Annotations map[string]string
	}
	Spec struct {
		podSpec
		Replicas *int
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     podSpec
		}
		Selector    map[string]any
		PodSelector map[string]any
		Rules       []struct{ Host string }
		PolicyTypes []string
		Ingress     []struct{ From []any }
	}
	AutomountServiceAccountToken *bool
}

// pod returns the spec of an object's pods, or nil if the object has no pods.
func (o object) pod() *podSpec {
	switch o.Kind {
	case "Pod":
		return &o.Spec.podSpec
	case "Deployment", "Job":
		return &o.Spec.Template.Spec
	}
	return nil
}

type podSpec struct {
	AutomountServiceAccountToken  *bool
	ServiceAccountName            string
	TerminationGracePeriodSeconds int
	HostNetwork, HostPID, HostIPC bool
	SecurityContext               struct {
		RunAsNonRoot          bool
		RunAsUser, RunAsGroup int
		SeccompProfile        struct{ Type string }
	}
	InitContainers []any
	Containers     []container
	Volumes        []map[string]any
}

type container struct {
	Name, Image     string
	Command         []string
	SecurityContext struct {
		AllowPrivilegeEscalation *bool
		ReadOnlyRootFilesystem   bool
		Privileged               *bool
		Capabilities             struct{ Add, Drop []string }
	}
	Env []struct {
		Name, Value string
		ValueFrom   *struct{ SecretKeyRef struct{ Name, Key string } }
	}
	Resources struct {
		Requests, Limits map[string]string
	}
	Ports []struct {
		Name          string
		ContainerPort int
	}
	ReadinessProbe, LivenessProbe *struct {
		HTTPGet        struct{ Path, Port string }
		TimeoutSeconds int
	}
	VolumeMounts []struct{ Name, MountPath string }
}

// value returns the value of an environment variable, and reports whether it refers to a secret.
func (c container) value(name string) (value string, secret bool) {
	for _, variable := range c.Env {
		if variable.Name == name {
			return variable.Value, variable.ValueFrom != nil
		}
	}
	return "", false
}

type release struct {
	Hooks, Objects []object
	Notes          string
}

// all returns the objects of a release, hooks included.
func (r release) all() []object { return slices.Concat(r.Hooks, r.Objects) }

// one returns the only object with this kind and name.
func (r release) one(t *testing.T, kind, name string) object {
	t.Helper()
	found := slices.DeleteFunc(r.all(), func(o object) bool { return o.Kind != kind || o.Metadata.Name != name })
	require.Len(t, found, 1, "%s %s", kind, name)
	return found[0]
}

// container returns the container of a process.
func (r release) container(t *testing.T, process string) container {
	t.Helper()
	kind := map[string]string{"migrate": "Job", "console": "Pod"}[process]
	return r.one(t, cmp.Or(kind, "Deployment"), "odometer-"+process).pod().Containers[0]
}

// reader builds dev/helm, which lints and renders a chart as Helm does, and returns its path.
var reader = sync.OnceValues(func() (string, error) {
	folder, err := os.MkdirTemp(os.Getenv("TEST_BINARIES"), "odometer-helm-*") // dev/up test removes the folder
	if err != nil {
		return "", err
	}
	path := filepath.Join(folder, "helm")
	out, err := exec.Command("go", "build", "-C", "../../dev/helm", "-o", path, ".").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build dev/helm: %w: %s", err, out)
	}
	return path, nil
})

// render renders the chart with values. Later values override earlier ones. It returns an error if Helm or the
// types of Kubernetes reject the values or the result.
func render(t *testing.T, values ...string) (made release, err error) {
	t.Helper()
	helm, err := reader()
	require.NoError(t, err)
	args := []string{chart, "odometer"}
	for _, value := range values {
		path := filepath.Join(t.TempDir(), "values.yaml")
		require.NoError(t, os.WriteFile(path, []byte(value), 0o600))
		args = append(args, path)
	}
	var stderr strings.Builder
	command := exec.CommandContext(t.Context(), helm, args...)
	command.Stderr = &stderr
	out, err := command.Output()
	if err != nil {
		return release{}, fmt.Errorf("%w: %s", err, &stderr)
	}
	return made, json.Unmarshal(out, &made)
}

// forEachRelease renders the chart with the values smallest, everything and closed, and runs try for each.
func forEachRelease(t *testing.T, try func(t *testing.T, made release)) {
	t.Helper()
	for name, values := range map[string][]string{"smallest": {smallest}, "everything": {smallest, everything}, "closed": {smallest, closed}} {
		t.Run(name, func(t *testing.T) {
			made, err := render(t, values...)
			require.NoError(t, err)
			try(t, made)
		})
	}
}

func TestChartRestrictsEveryContainer(t *testing.T) {
	t.Parallel()
	forEachRelease(t, func(t *testing.T, made release) {
		pods := 0
		for _, o := range made.all() {
			if o.Kind == "ServiceAccount" {
				require.False(t, *o.AutomountServiceAccountToken)
			}
			pod := o.pod()
			if pod == nil {
				continue
			}
			pods++
			require.False(t, *pod.AutomountServiceAccountToken, o.Metadata.Name)
			require.False(t, pod.HostNetwork || pod.HostPID || pod.HostIPC, o.Metadata.Name)
			require.True(t, pod.SecurityContext.RunAsNonRoot, o.Metadata.Name)
			require.Equal(t, 65532, pod.SecurityContext.RunAsUser, o.Metadata.Name) // as in the Dockerfile
			require.Equal(t, 65532, pod.SecurityContext.RunAsGroup, o.Metadata.Name)
			require.Equal(t, "RuntimeDefault", pod.SecurityContext.SeccompProfile.Type, o.Metadata.Name)
			require.Empty(t, pod.InitContainers, o.Metadata.Name)
			for _, c := range pod.Containers {
				require.False(t, *c.SecurityContext.AllowPrivilegeEscalation, c.Name)
				require.True(t, c.SecurityContext.ReadOnlyRootFilesystem, c.Name)
				require.Nil(t, c.SecurityContext.Privileged, c.Name)
				require.Empty(t, c.SecurityContext.Capabilities.Add, c.Name)
				require.Equal(t, []string{"ALL"}, c.SecurityContext.Capabilities.Drop, c.Name)
				require.NotEmpty(t, c.Resources.Limits["memory"], c.Name)
				require.Regexp(t, `^registry\.example\.com/odometer:0\.1\.0(@sha256:[0-9a-f]{64})?$`, c.Image)
			}
			for _, volume := range pod.Volumes {
				require.Contains(t, volume, "secret", o.Metadata.Name)
			}
		}
		require.GreaterOrEqual(t, pods, 3)
	})
}

// chartSecrets lists the environment variables with secret values, which no manifest may contain.
var chartSecrets = []string{"DATABASE_URL", "ODOMETER_SECRET", "ODOMETER_ENCRYPTION_KEYS", "REDIS_URL", "TEMPORAL_API_KEY"}

func TestChartTakesSecretsByReference(t *testing.T) {
	t.Parallel()
	forEachRelease(t, func(t *testing.T, made release) {
		for _, o := range made.all() {
			require.NotEqual(t, "Secret", o.Kind)
			if o.pod() == nil {
				continue
			}
			for _, variable := range o.pod().Containers[0].Env {
				require.Equal(t, slices.Contains(chartSecrets, variable.Name), variable.ValueFrom != nil, variable.Name)
				if variable.ValueFrom != nil {
					require.Empty(t, variable.Value)
					require.NotEmpty(t, variable.ValueFrom.SecretKeyRef.Name, variable.Name)
					require.NotEmpty(t, variable.ValueFrom.SecretKeyRef.Key, variable.Name)
				}
			}
		}
		for process, role := range map[string]string{"migrate": "owner", "api": "api", "worker": "worker"} {
			for _, variable := range made.container(t, process).Env {
				if variable.Name == "DATABASE_URL" {
					require.Equal(t, "odometer-database-"+role, variable.ValueFrom.SecretKeyRef.Name)
				}
			}
		}
	})
}

// readBy returns the environment variables that a process reads.
func readBy(t *testing.T, process string) map[string]bool {
	t.Helper()
	read := map[string]bool{"GOMEMLIMIT": true, "GOGC": true} // read by the Go runtime
	err := run(t.Context(), []string{process}, func(name string) string {
		read[name] = true
		return ""
	}, nil, nil)
	require.ErrorContains(t, err, "DATABASE_URL is required")
	if process != "migrate" {
		_, err = envconfig.LoadClientOptions(envconfig.LoadClientOptionsRequest{EnvLookup: asked(read)})
		require.NoError(t, err)
	}
	return read
}

// asked records the environment variables that Temporal's configuration reads.
type asked map[string]bool

func (asked) Environ() []string { return nil }

func (a asked) LookupEnv(name string) (string, bool) {
	a[name] = true
	return "", false
}

func TestChartSetsOnlySettingsThatBinaryReads(t *testing.T) {
	t.Parallel()
	set := make(map[string]bool)
	forEachRelease(t, func(t *testing.T, made release) {
		for _, process := range []string{"migrate", "api", "worker"} {
			read, once := readBy(t, process), make(map[string]bool)
			for _, variable := range made.container(t, process).Env {
				require.True(t, read[variable.Name], "%s does not read %s", process, variable.Name)
				require.False(t, once[variable.Name], "%s is given %s twice", process, variable.Name)
				once[variable.Name], set[variable.Name] = true, true
			}
			for _, name := range []string{"DATABASE_URL", "API_ROLE", "WORKER_ROLE", "ODOMETER_SECRET", "ODOMETER_ENCRYPTION_KEYS", "TEMPORAL_ADDRESS", "BASE_URL", "METRICS_ADDRESS", "LISTEN_ADDRESS"} {
				require.Equal(t, read[name], once[name], "%s of %s", name, process)
			}
		}
	})
	made, err := render(t, smallest, everything)
	require.NoError(t, err)
	level, _ := made.container(t, "api").value("LOG_LEVEL")
	require.Equal(t, "debug", level, "a process's own env goes before that of all")
	level, _ = made.container(t, "worker").value("LOG_LEVEL")
	require.Equal(t, "warn", level)
	calls, _ := made.container(t, "api").value("CALLS_PER_MINUTE")
	require.Equal(t, "6000000", calls)
	console := made.container(t, "console")
	for name := range readBy(t, "migrate") {
		if name != "GOGC" && name != "GOMEMLIMIT" {
			value, secret := console.value(name)
			require.True(t, secret || value != "", name)
		}
	}

	var schema struct {
		Defs struct {
			Env struct {
				PropertyNames struct {
					AnyOf []struct {
						Enum    []string
						Pattern string
					}
				}
			}
		} `json:"$defs"`
	}
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &schema))
	allowed := schema.Defs.Env.PropertyNames.AnyOf[0].Enum
	temporal := regexp.MustCompile(schema.Defs.Env.PropertyNames.AnyOf[2].Pattern)
	goOwn := []string{"GODEBUG", "GOMAXPROCS", "GOTRACEBACK", "SSL_CERT_DIR", "SSL_CERT_FILE"}
	known := readBy(t, "api")
	maps.Copy(known, readBy(t, "worker"))
	for _, name := range allowed {
		require.True(t, known[name] || slices.Contains(goOwn, name), "nothing reads %s", name)
	}
	for name := range known {
		if !strings.HasPrefix(name, "TEMPORAL_") {
			ours := set[name] && !slices.Contains([]string{"EVENT_RETENTION", "LOG_LEVEL", "TRUSTED_PROXIES", "CALLS_PER_MINUTE", "GOMEMLIMIT"}, name) // in the env of everything
			require.NotEqual(t, ours, slices.Contains(allowed, name), "%s is either the chart's or may be in env", name)
		}
		if temporal.MatchString(name) {
			require.False(t, slices.Contains(chartSecrets, name), "%s is a secret", name)
		}
	}
}

func TestChartProbesServedPathsAndPorts(t *testing.T) {
	t.Parallel()
	document, _, err := api.Documents(registry.New(providers.Guard{}, ""))
	require.NoError(t, err)
	var served struct{ Paths map[string]map[string]any }
	require.NoError(t, json.Unmarshal(document, &served))
	forEachRelease(t, func(t *testing.T, made release) {
		for process, variable := range map[string]string{"api": "LISTEN_ADDRESS", "worker": "METRICS_ADDRESS"} {
			c := made.container(t, process)
			require.Equal(t, "/readyz", c.ReadinessProbe.HTTPGet.Path)
			require.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path)
			require.Greater(t, c.ReadinessProbe.TimeoutSeconds, 3, "readiness takes as long where Temporal does not answer")
			for _, get := range []struct{ Path, Port string }{c.ReadinessProbe.HTTPGet, c.LivenessProbe.HTTPGet} {
				address, _ := c.value(variable)
				require.Equal(t, address, ":"+strconv.Itoa(c.port(get.Port)))
				if process == "api" {
					require.Contains(t, served.Paths[get.Path], "get")
					continue
				}
				var started atomic.Bool
				started.Store(true)
				answer := httptest.NewRecorder()
				workerRoutes(&started, nil, prometheus.NewRegistry()).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, get.Path, nil))
				require.Equal(t, http.StatusOK, answer.Code)
			}
			address, _ := c.value("METRICS_ADDRESS")
			require.Equal(t, address, ":"+strconv.Itoa(c.port("metrics")))
		}
		require.GreaterOrEqual(t, made.one(t, "Deployment", "odometer-api").pod().TerminationGracePeriodSeconds, 45+5)
		require.GreaterOrEqual(t, made.one(t, "Deployment", "odometer-worker").pod().TerminationGracePeriodSeconds, 45)
	})
}

// port returns the number of a port by its name, or 0.
func (c container) port(name string) int {
	for _, port := range c.Ports {
		if port.Name == name {
			return port.ContainerPort
		}
	}
	return 0
}

func TestChartMigratesBeforeAnythingElse(t *testing.T) {
	t.Parallel()
	forEachRelease(t, func(t *testing.T, made release) {
		require.Len(t, made.Hooks, 1)
		job := made.Hooks[0]
		require.Equal(t, "Job", job.Kind)
		require.Equal(t, "pre-install,pre-upgrade,pre-rollback", job.Metadata.Annotations["helm.sh/hook"])
		require.Equal(t, []string{"odometer", "migrate"}, job.pod().Containers[0].Command)
		require.Empty(t, job.pod().ServiceAccountName, "the release's does not exist yet")
		for _, process := range []string{"api", "worker"} {
			require.Equal(t, []string{"odometer", process}, made.container(t, process).Command)
			require.Equal(t, job.pod().Containers[0].Image, made.container(t, process).Image)
			require.Equal(t, "odometer", made.one(t, "Deployment", "odometer-"+process).pod().ServiceAccountName)
		}
	})
}

func TestChartPreparesTemporalNamespaceIfEnabled(t *testing.T) {
	t.Parallel()
	few, err := render(t, smallest)
	require.NoError(t, err)
	require.Len(t, few.one(t, "Job", "odometer-migrate").pod().Containers, 1)

	all, err := render(t, smallest, everything)
	require.NoError(t, err)
	containers := all.one(t, "Job", "odometer-migrate").pod().Containers
	require.Len(t, containers, 2)
	require.Equal(t, []string{"odometer", "temporal", "prepare"}, containers[1].Command)
	require.Equal(t, containers[0].Image, containers[1].Image)
	of := func(c container) (variables []any) {
		for _, variable := range c.Env {
			if strings.HasPrefix(variable.Name, "TEMPORAL_") {
				variables = append(variables, variable)
			}
		}
		return variables
	}
	require.Equal(t, of(all.container(t, "worker")), of(containers[1]))
	require.Len(t, containers[1].Env, len(of(containers[1])), "it is given no database and no secret of Odometer")
}

// TestChartSelectsItsPods checks the pods that each selector matches. Kubernetes also accepts a selector that matches
// no pods, or pods of another process.
func TestChartSelectsItsPods(t *testing.T) {
	t.Parallel()
	forEachRelease(t, func(t *testing.T, made release) {
		for _, o := range made.all() {
			selector := o.Spec.Selector
			if o.Kind == "NetworkPolicy" {
				selector = o.Spec.PodSelector
			}
			if labels, nested := selector["matchLabels"].(map[string]any); nested {
				selector = labels
			}
			var selected []string
			for _, target := range made.all() {
				labels := target.Spec.Template.Metadata.Labels
				switch {
				case o.Kind == "ServiceMonitor" && target.Kind == "Service":
					labels = target.Metadata.Labels
				case target.Kind == "Pod":
					labels = target.Metadata.Labels
				}
				if selects(selector, labels) {
					selected = append(selected, target.Metadata.Name)
				}
			}
			switch component := o.Metadata.Labels["app.kubernetes.io/component"]; {
			case len(selector) == 0:
				require.Contains(t, []string{"Job", "Pod", "Ingress", "ServiceAccount"}, o.Kind)
			case o.Kind == "ServiceMonitor":
				require.Equal(t, []string{"odometer-" + component + "-metrics"}, selected)
			case component == "all":
				require.Subset(t, selected, []string{"odometer-api", "odometer-migrate", "odometer-worker"})
			default:
				require.Equal(t, []string{"odometer-" + strings.TrimSuffix(component, "-metrics")}, selected, "%s %s", o.Kind, o.Metadata.Name)
			}
		}
	})
}

// selects reports whether a selector matches the labels. An empty selector matches nothing here.
func selects(selector map[string]any, labels map[string]string) bool {
	for key, value := range selector {
		if labels[key] != value {
			return false
		}
	}
	return len(selector) > 0
}

func TestChartRendersWithMinimalAndAllValues(t *testing.T) {
	t.Parallel()
	few, err := render(t, smallest)
	require.NoError(t, err)
	require.Equal(t, 2, *few.one(t, "Deployment", "odometer-api").Spec.Replicas)
	kinds := make(map[string]int)
	for _, o := range few.all() {
		kinds[o.Kind]++
	}
	require.Equal(t, map[string]int{"Job": 1, "ServiceAccount": 1, "Service": 1, "Deployment": 2, "PodDisruptionBudget": 2}, kinds)
	require.Contains(t, few.Notes, "https://odometer.example.com")

	all, err := render(t, smallest, everything)
	require.NoError(t, err)
	require.Nil(t, all.one(t, "Deployment", "odometer-api").Spec.Replicas)
	require.Equal(t, 0, *all.one(t, "Deployment", "odometer-worker").Spec.Replicas)
	require.Equal(t, "odometer.example.com", all.one(t, "Ingress", "odometer-api").Spec.Rules[0].Host)
	require.Equal(t, []string{"Ingress", "Egress"}, all.one(t, "NetworkPolicy", "odometer").Spec.PolicyTypes)
	for _, process := range []string{"migrate", "api", "worker", "console"} {
		require.Len(t, all.container(t, process).VolumeMounts, 2, process)
	}

	shut, err := render(t, smallest, closed)
	require.NoError(t, err)
	require.Empty(t, shut.one(t, "NetworkPolicy", "odometer").Spec.Ingress, "nobody may scrape until somebody is named")
	require.Len(t, shut.one(t, "NetworkPolicy", "odometer-api").Spec.Ingress, 1)
}

func TestChartRejectsInvalidValues(t *testing.T) {
	t.Parallel()
	for values, says := range map[string]string{
		`baseURL: ""`:                           "baseURL",
		`baseURL: https://example.com/odometer`: "baseURL",
		`image: { repository: "" }`:             "repository",
		`image: { tag: latest }`:                "image.tag must be an exact version",
		`image: { tag: "" }`:                    "image.tag must be an exact version", // before the first release
		`image: { digest: sha256:12 }`:          "digest",
		`temporal: { address: "" }`:             "address",
		`temporal: { namespace: "" }`:           "namespace",
		`database: { api: { secret: "" } }`:     "secret",
		`database: { api: { url: "postgres://odometer_api:secret@db/odometer" } }`: "url",
		`env: { ODOMETER_SECRET: secret }`:                                         "ODOMETER_SECRET",
		`env: { TEMPORAL_API_KEY: secret }`:                                        "TEMPORAL_API_KEY",
		`env: { TEMPORAL_TLS_CLIENT_KEY_DATA: secret }`:                            "TEMPORAL_TLS_CLIENT_KEY_DATA",
		`env: { PGPASSWORD: secret }`:                                              "PGPASSWORD",
		`env: { METRICS_ADDRESS: ":9090" }`:                                        "METRICS_ADDRESS",
		`env: { CALLS_PER_MINUTE: 6000000 }`:                                       "CALLS_PER_MINUTE", // would become 6e+06
		`api: { env: { EVENT_RETENTON: 400d } }`:                                   "EVENT_RETENTON",
		`worker: { replica: 3 }`:                                                   "replica",
	} {
		_, err := render(t, smallest, values)
		require.ErrorContains(t, err, says, values)
	}
}

func TestChartAcceptsDocumentedValues(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operating/kubernetes.md")
	require.NoError(t, err)
	shown := regexp.MustCompile("(?s)```yaml\n(# production.yaml\n.*?)```").FindSubmatch(text)
	require.NotNil(t, shown)
	made, err := render(t, string(shown[1]))
	require.NoError(t, err)
	_, secret := made.container(t, "api").value("TEMPORAL_API_KEY")
	require.True(t, secret)
}

// TestChartAppVersionIsNewestRelease checks that appVersion is the newest release in the changelog. Before the first
// release, appVersion is "(devel)", as in the output of `odometer version`.
func TestChartAppVersionIsNewestRelease(t *testing.T) {
	t.Parallel()
	want := "(devel)"
	changelog, err := os.ReadFile("../../CHANGELOG.md")
	require.NoError(t, err)
	if released := regexp.MustCompile(`(?m)^## \[(\d[^\]]*)\]`).FindSubmatch(changelog); released != nil {
		want = string(released[1])
	}
	metadata, err := os.ReadFile(filepath.Join(chart, "Chart.yaml"))
	require.NoError(t, err)
	require.Equal(t, want, string(regexp.MustCompile(`(?m)^appVersion: "?([^"\n]*)"?$`).FindSubmatch(metadata)[1]))
}
