package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/dev/receiver"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

const webhookSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"

// process lets the outage kill and start the worker of a test.
type process struct {
	*proc.Process
	t *testing.T
}

func (p process) Kill(context.Context) error {
	p.Process.Kill(p.t)
	return nil
}

func (p process) Start(context.Context) error {
	p.Process.Start(p.t)
	return nil
}

func TestDrillAnOutageEndsWithWhatWasUsed(t *testing.T) {
	address := os.Getenv("TEST_TEMPORAL_ADDRESS")
	require.NotEmpty(t, address, "run make test, or dev/up test go test ./...")
	_, database := dbtest.Fresh(t)
	fake := newStripe(t)
	system := proc.New(t, proc.Config{DatabaseURL: database, TemporalAddress: address, Env: []string{"STRIPE_API_BASE=" + string(fake)}})
	api, worker := system.API(t), system.Worker(t)
	c := fill(t, system, api.URL, fake)

	var printed bytes.Buffer
	o, err := newOutage(c, proc.Temporal(t, address, system.Namespace), process{worker, t}, io.MultiWriter(&printed, t.Output()))
	require.NoError(t, err)
	o.timeLimit = dbtest.Deadline
	require.NoError(t, o.run(t.Context()))
	text := printed.String()
	require.Contains(t, text, "auto-sync/2")
	require.Regexp(t, `attempt \d+, "Stripe answered 503"`, text)
	require.Contains(t, text, "202 running")
	require.Equal(t, 14, strings.Count(text, " ok\n"))
	require.Contains(t, text, "nothing twice, nothing lost: OK")

	fake.tell(t, "cus_contoso")
	require.ErrorContains(t, o.prove(t.Context()), "1 of 14 lines differ", "somebody else told Stripe something")
}

// stripe is the base URL of a fake of Stripe.
type stripe string

func newStripe(t *testing.T) stripe {
	server := httptest.NewServer(stripetest.New(stripetest.Options{}))
	t.Cleanup(server.Close)
	return stripe(server.URL)
}

// tell sends a meter event to the fake directly, so that Odometer has no record of it.
func (s stripe) tell(t *testing.T, customer string) {
	t.Helper()
	state, err := (&outage{config: config{StripeURL: string(s)}}).state(t.Context())
	require.NoError(t, err)
	key := "sk_test_" + strings.TrimPrefix(state.Accounts[0].ID, "acct_")
	form := strings.NewReader("event_name=tokens&payload[value]=1&payload[stripe_customer_id]=" + customer)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, string(s)+"/v1/billing/meter_events", form)
	require.NoError(t, err)
	request.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	answer.Body.Close()
	require.Equal(t, http.StatusOK, answer.StatusCode)
}

// fill creates two tenants, fills them with the demo's data, and returns the configuration of the outage.
func fill(t *testing.T, system *proc.System, api string, fake stripe) config {
	t.Helper()
	hooks := httptest.NewServer(receiver.New(webhookSecret))
	t.Cleanup(hooks.Close)
	_, first := system.Tenant(t)
	id, key := system.Tenant(t)
	credentials, err := json.Marshal(map[string]string{
		"base_url": api, "admin_key": first, "webhook_receiver_url": hooks.URL,
		"stripe_tenant_id": id, "stripe_admin_key": key, "stripe_fake_url": string(fake),
	})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "credentials.json")
	require.NoError(t, os.WriteFile(path, credentials, 0o600))
	demo := exec.CommandContext(t.Context(), "go", "run", "../demo", "-credentials", path)
	demo.Env = append(os.Environ(), "WEBHOOK_SECRET="+webhookSecret)
	out, err := demo.CombinedOutput()
	require.NoError(t, err, string(out))
	c, err := configure(path)
	require.NoError(t, err)
	return c
}
