package main_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

const monitoring = "../../docs/monitoring/"

func TestAlertRulesPassPromtool(t *testing.T) {
	t.Parallel()
	for _, command := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		promtool := exec.CommandContext(t.Context(), "promtool", command...)
		promtool.Dir = monitoring
		out, err := promtool.CombinedOutput()
		require.NoError(t, err, "dev/up setup installs promtool: %s", out)
	}
}

// TestEachAlertHasDocumentedSteps compares the alerts with the sections and the table of docs/operating/alerts.md.
func TestEachAlertHasDocumentedSteps(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile(monitoring + "alerts.yaml")
	require.NoError(t, err)
	page, err := os.ReadFile("../../docs/operating/alerts.md")
	require.NoError(t, err)
	var alerts, listed, explained []string
	for _, alert := range regexp.MustCompile(`(?s)- alert: (\w+)\n.*?severity: (\w+)`).FindAllSubmatch(rules, -1) {
		alerts = append(alerts, string(alert[1])+" "+string(alert[2]))
	}
	for _, row := range regexp.MustCompile(`(?m)^\| \[(\w+)\]\(#\w+\) \| (\w+) \|`).FindAllSubmatch(page, -1) {
		listed = append(listed, string(row[1])+" "+string(row[2]))
		if regexp.MustCompile(`(?m)^## ` + string(row[1]) + `\n[^#]*?\n1\. `).Match(page) {
			explained = append(explained, string(row[1])+" "+string(row[2]))
		}
	}
	require.NotEmpty(t, alerts)
	require.Equal(t, alerts, listed)
	require.Equal(t, alerts, explained)
}

// grafana contains the fields of the dashboard's file that the tests check.
type grafana struct {
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type, Query string }
	}
	Panels []struct {
		ID         int
		Title      string
		Type       string
		Datasource struct{ Type, UID string }
		GridPos    struct{ H, W, X, Y int }
		Targets    []struct{ RefID, Expr string }
	}
}

func dashboardOfGrafana(t *testing.T) (dashboard grafana) {
	t.Helper()
	text, err := os.ReadFile(monitoring + "dashboard.json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &dashboard))
	return dashboard
}

// TestGrafanaDashboardPanelsAreValid checks the dashboard without Grafana, because no archive of Debian has Grafana.
func TestGrafanaDashboardPanelsAreValid(t *testing.T) {
	t.Parallel()
	dashboard := dashboardOfGrafana(t)
	require.Positive(t, dashboard.SchemaVersion)
	require.Len(t, dashboard.Templating.List, 1)
	source := dashboard.Templating.List[0]
	require.Equal(t, "datasource", source.Type)
	require.Equal(t, "prometheus", source.Query)
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range dashboard.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		require.Contains(t, []string{"stat", "timeseries"}, p.Type, p.Title)
		require.Equal(t, "prometheus", p.Datasource.Type, p.Title)
		require.Equal(t, "${"+source.Name+"}", p.Datasource.UID, p.Title)
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				require.Empty(t, taken[at], "%s covers another panel", p.Title)
				taken[at] = p.Title
			}
		}
		refs := map[string]bool{}
		for _, target := range p.Targets {
			require.NotEmpty(t, target.Expr, p.Title)
			require.False(t, refs[target.RefID], "%s: %s", p.Title, target.RefID)
			refs[target.RefID] = true
		}
		require.NotEmpty(t, refs, p.Title)
	}
}

// TestPrometheusHasMetricsOfAlertsAndDashboard scrapes an API and a worker after some work, part of which fails.
func TestPrometheusHasMetricsOfAlertsAndDashboard(t *testing.T) {
	t.Parallel()
	w := watch(t, "UTC")
	p := startPrometheus(t, w)
	provider, secret := newReceiver(t)
	fails := httptest.NewServer(http.HandlerFunc(func(answer http.ResponseWriter, _ *http.Request) { answer.WriteHeader(http.StatusInternalServerError) }))
	t.Cleanup(fails.Close)
	w.call(200, "PUT", "/v1/billing/provider", fmt.Sprintf(`{"type":"webhook","url":%q,"secret":%q}`, provider.URL, secret))
	w.call(201, "POST", "/v1/webhooks", fmt.Sprintf(`{"url":%q,"event_types":["sync.failed"]}`, fails.URL))
	w.call(200, "POST", "/v1/events", `{"event_type":"call","customer_id":"acme","value":2.5}`)
	p.scraped(`odometer_syncs_total{outcome="failed"}`) // so that the next failure is an increase
	status, text := call(t, "POST", provider.URL+"/behave", "", `{"status":410,"times":1000}`)
	require.Less(t, status, 300, text)
	w.sync("acme")
	w.exec(`update billing_reports set state = 'in_doubt'`)
	w.exec(`insert into alert_due (tenant_id, customer_id, due_at, failures) select tenant_id, id, '2100-01-01', 1 from customers`)

	dashboard := dashboardOfGrafana(t)
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			p.scraped(target.Expr)
		}
	}
	alerts, err := os.ReadFile(monitoring + "alerts.yaml")
	require.NoError(t, err)
	names := regexp.MustCompile(`\b(odometer|temporal)_[a-z_]+`).FindAllString(string(alerts), -1)
	require.Greater(t, len(names), 10)
	for _, name := range names {
		p.scraped(name)
	}
	p.scraped(`ALERTS{alertname="OdometerSyncsFail",alertstate="firing"}`)
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, State string }
		}
	}
	p.get("/api/v1/rules", &rules)
	require.Len(t, rules.Groups, 1)
	require.Greater(t, len(rules.Groups[0].Rules), 10)
	for _, rule := range rules.Groups[0].Rules {
		require.Equal(t, "ok", rule.Health, rule.Name)
		require.False(t, rule.State == "firing" && rule.Name != "OdometerSyncsFail", "%s is firing", rule.Name)
	}
}

// prometheus is a Prometheus server that scrapes a system and evaluates the alerts of docs/monitoring.
type prometheus struct {
	*testing.T
	url string
}

func startPrometheus(t *testing.T, w *watched) prometheus {
	t.Helper()
	folder, address := t.TempDir(), proc.FreeAddress(t)
	alerts, err := filepath.Abs(monitoring + "alerts.yaml")
	require.NoError(t, err)
	api, err := url.Parse(w.api.MetricsURL)
	require.NoError(t, err)
	config := filepath.Join(folder, "prometheus.yml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `
global: {scrape_interval: 500ms, evaluation_interval: 500ms}
rule_files: [%q]
scrape_configs: [{job_name: odometer, static_configs: [{targets: [%q, %q]}]}]
`, alerts, api.Host, w.worker.Address), 0o600))
	serve(t, "prometheus", "--config.file="+config, "--storage.tsdb.path="+folder+"/data", "--web.listen-address="+address)
	return prometheus{t, "http://" + address}
}

// serve runs a server, which dev/up setup installs, until the test ends. If the test fails, serve logs the
// server's output.
func serve(t *testing.T, name string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	server := exec.CommandContext(t.Context(), name, args...)
	server.Stdout, server.Stderr = log, log
	require.NoError(t, server.Start(), "dev/up setup installs %s", name)
	t.Cleanup(func() {
		_ = server.Wait() // the test's context has ended it
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s:\n%s", name, text)
		}
		_ = log.Close()
	})
}

// get reads a path of the API of Prometheus into data.
func (p prometheus) get(path string, data any) {
	p.Helper()
	status, text := call(p.T, "GET", p.url+path, "", "")
	require.Equal(p, http.StatusOK, status, text)
	answer := struct{ Data any }{data}
	require.NoError(p, json.Unmarshal([]byte(text), &answer))
}

// scraped waits until Prometheus returns a value for the expression.
func (p prometheus) scraped(expression string) {
	p.Helper()
	dbtest.Eventually(p.T, func() error {
		status, text := call(p.T, "GET", p.url+"/api/v1/query?query="+url.QueryEscape(expression), "", "")
		if status == http.StatusBadRequest || status == http.StatusUnprocessableEntity {
			require.Fail(p, text, expression)
		}
		var answer struct {
			Data struct{ Result []json.RawMessage }
		}
		err := json.Unmarshal([]byte(text), &answer)
		if err == nil && len(answer.Data.Result) == 0 {
			err = errors.New("nothing of it was scraped: " + expression)
		}
		return err
	})
}
