package main_test

import (
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oauth2-proxy/mockoidc"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

const dashboardFolder = "../../dashboard"

// vitestTimeout matches the errors of Vitest when its worker does not start within fixed times of 60 and 90 seconds.
var vitestTimeout = regexp.MustCompile(`Timeout (starting|waiting for worker)`)

// TestTheDashboardsOwnTestsPass runs the dashboard's unit tests in Node. The build has already checked the types.
func TestTheDashboardsOwnTestsPass(t *testing.T) {
	t.Parallel()
	dbtest.Eventually(t, func() error {
		out, err := exec.CommandContext(t.Context(), "npm", "run", "unit", "--silent", "--prefix", dashboardFolder).CombinedOutput()
		if err != nil && vitestTimeout.Match(out) {
			return fmt.Errorf("%w: %s", err, out)
		}
		require.NoError(t, err, "%s", out)
		return nil
	})
}

// TestDrillTheDashboardIsUsedInABrowser performs every action of the dashboard.
func TestDrillTheDashboardIsUsedInABrowser(t *testing.T) {
	t.Parallel()
	made := filepath.Join(t.TempDir(), "made")
	t.Run("walks", func(t *testing.T) {
		t.Run("every screen", func(t *testing.T) { everyScreen(t, made) })
		t.Run("a newcomer and an operator", func(t *testing.T) { newcomer(t, made) })
	})
	if !t.Failed() && os.Getenv("ONLY") == "" {
		requireEveryAction(t, made)
	}
}

var actions = regexp.MustCompile(`\bapi\.(POST|PUT|PATCH|DELETE)\("([^"]+)"`)

// requireEveryAction requires that the recorded calls include every POST, PUT, PATCH and DELETE in the
// dashboard's source.
func requireEveryAction(t *testing.T, made string) {
	t.Helper()
	calls, err := os.ReadFile(made)
	require.NoError(t, err)
	var missing []string
	known := 0
	err = fs.WalkDir(os.DirFS(dashboardFolder), "src", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".ts") && !strings.HasSuffix(path, ".tsx") {
			return err
		}
		source, err := os.ReadFile(filepath.Join(dashboardFolder, path))
		for _, action := range actions.FindAllStringSubmatch(string(source), -1) {
			known++
			call := regexp.MustCompile(`(?m)^` + action[1] + ` ` + regexp.MustCompile(`\{\w+\}`).ReplaceAllString(action[2], `[^/]+`) + `$`)
			if !call.Match(calls) {
				missing = append(missing, path+": "+action[1]+" "+action[2])
			}
		}
		return err
	})
	require.NoError(t, err)
	require.Greater(t, known, 50)
	require.Empty(t, missing, "the walks do not take these actions")
}

// everyScreen signs in, opens every screen in both color schemes and in a phone window, and signs out.
// Chromium reports no error and no request to an unexpected origin, and axe-core finds no violation.
func everyScreen(t *testing.T, made string) {
	t.Parallel()
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: os.Getenv("TEST_TEMPORAL_ADDRESS"), Env: []string{"TEMPORAL_UI_URL=https://temporal.example.com"}})
	_, key := system.Tenant(t)
	api := system.API(t).URL
	system.Worker(t)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }))
	t.Cleanup(receiver.Close)
	issuer, err := mockoidc.Run()
	require.NoError(t, err)
	t.Cleanup(func() { _ = issuer.Shutdown() })
	fillForTheDashboard(t, caller(t, api, key))
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	defer conn.Close(t.Context())
	_, err = conn.Exec(t.Context(), "update customers set created_at = created_at - interval '2 months' where external_id = 'customer-00'")
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), `
		insert into usage_discrepancies (tenant_id, customer_id, meter_id, day, rollup_sum, rollup_count, event_sum, event_count, found_at)
		select c.tenant_id, c.id, m.id, current_date - 1, 41.5, 41, 42.5, 42, now()
		from customers c
		join meters m on m.tenant_id = c.tenant_id and m.slug = 'api-calls'
		where c.external_id = 'customer-01'`)
	require.NoError(t, err)
	walkThrough(t, "screens", api, "MADE="+made, "RECEIVER="+receiver.URL, "ISSUER="+issuer.Issuer(), "CLIENT="+issuer.ClientID, "SECRET="+issuer.ClientSecret)
}

// newcomer follows the labels from an empty tenant to the run of a sync in the Temporal UI. It then does the
// steps of an operator: after syncs failed at Stripe, and when invoices of Stripe disagree.
func newcomer(t *testing.T, made string) {
	t.Parallel()
	clock := proc.NewClock(t)
	stripe := httptest.NewServer(stripetest.New(stripetest.Options{Now: clock.Now}))
	t.Cleanup(stripe.Close)
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: os.Getenv("TEST_TEMPORAL_ADDRESS"), Clock: clock, Env: []string{
		"TEMPORAL_UI_URL=" + os.Getenv("TEST_TEMPORAL_UI_URL"), "STRIPE_API_BASE=" + stripe.URL,
	}})
	_, key := system.Tenant(t)
	api := system.API(t).URL
	system.Worker(t)
	makeOwner(t, caller(t, api, key))
	walkThrough(t, "newcomer", api, "MADE="+made, "STRIPE="+stripe.URL, "CLOCK="+serveClock(t, clock))
}

// serveClock returns a URL that advances the clock to the instant in the body of a request.
func serveClock(t *testing.T, clock *proc.Clock) (url string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var to time.Time
		text, err := io.ReadAll(r.Body)
		if err == nil {
			to, err = time.Parse(time.RFC3339, string(text))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		clock.To(t, to)
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// The credentials of the member that uses the dashboard.
const email, password = "ada@example.com", "long enough for anybody"

// walkThrough walks through the dashboard in a browser, and prints the durations that the walk measures.
func walkThrough(t *testing.T, walk, api string, env ...string) {
	t.Helper()
	runInBrowser(t, walk, append([]string{"ODOMETER_URL=" + api, "ODOMETER_EMAIL=" + email, "ODOMETER_PASSWORD=" + password}, env...)...)
}

// runInBrowser runs the Playwright tests of a folder or file of dashboard/e2e, and prints the durations that they
// measure.
func runInBrowser(t *testing.T, tests string, env ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "npm", "run", "e2e", "--silent", "--prefix", dashboardFolder, "--", "e2e/"+tests, "--output", t.TempDir())
	command.Env = append(os.Environ(), env...)
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("%s", out)
}

// caller returns a function that calls the API and requires success.
func caller(t *testing.T, api, key string) func(method, path, body string) string {
	return func(method, path, body string) string {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), method, api+path, strings.NewReader(body))
		require.NoError(t, err)
		request.Header.Set("Authorization", "Bearer "+key)
		request.Header.Set("Content-Type", "application/json")
		response, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.Less(t, response.StatusCode, 300, "%s %s: %s", method, path, text)
		return string(text)
	}
}

// makeOwner invites the owner and accepts the invitation with a password.
func makeOwner(t *testing.T, call func(method, path, body string) string) {
	t.Helper()
	var invitation struct{ Token string }
	require.NoError(t, json.Unmarshal([]byte(call("POST", "/v1/tenant/members", `{"email":"`+email+`","name":"Ada","role":"owner"}`)), &invitation))
	call("POST", "/v1/invitations/accept", fmt.Sprintf(`{"token":%q,"password":%q}`, invitation.Token, password))
}

// fillForTheDashboard creates a member, a plan and two pages of customers. The first customer has a bill for
// this month and for the previous month.
func fillForTheDashboard(t *testing.T, call func(method, path, body string) string) {
	t.Helper()
	now := time.Now().UTC()
	makeOwner(t, call)
	call("POST", "/v1/meters", `{"slug":"api-calls","event_type":"call","aggregation":"sum"}`)
	call("POST", "/v1/meters", `{"slug":"tokens","event_type":"llm","aggregation":"sum","group_by":["model"]}`)
	call("PUT", "/v1/meters/api-calls/pricing", fmt.Sprintf(`{"base_price":25,"included_units":1000,"overage_rate":0.02,"effective_from":%q}`,
		now.AddDate(0, 0, -93).Format(time.RFC3339)))
	call("POST", "/v1/plans", `{"slug":"pro","name":"Pro"}`)
	for i := range 30 {
		call("POST", "/v1/customers", fmt.Sprintf(`{"external_id":"customer-%02d","name":"Customer %02d"}`, i, i))
	}
	call("POST", "/v1/events/batch", `{"events":[{"event_type":"call"},{"event_type":"call","customer_id":"customer-00","timestamp":"1999-01-01T00:00:00Z"}]}`) // both rejected
	for key, event := range map[string]struct {
		at    time.Time
		value string
	}{"a": {now, "1250.5"}, "b": {now.AddDate(0, 0, -now.Day()-2), "1040"}} {
		call("POST", "/v1/events", fmt.Sprintf(`{"customer_id":"customer-00","event_type":"call","value":%s,"idempotency_key":%q,"timestamp":%q}`,
			event.value, key, event.at.Format(time.RFC3339)))
	}
	call("POST", "/v1/events", `{"customer_id":"customer-01","event_type":"call","value":7,"idempotency_key":"a"}`) // a conflict
	call("POST", "/v1/events", `{"customer_id":"customer-02","event_type":"call","value":750.5,"idempotency_key":"c"}`)
	call("PUT", "/v1/customers/customer-02/plan", `{"plan":"pro"}`)
	call("POST", "/v1/quotas/reserve", `{"customer":"customer-02","amounts":[{"meter":"api-calls","amount":100}],"expires_in":86400}`)
}
