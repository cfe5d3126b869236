package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/dev/receiver"
	"github.com/odometer-metering/odometer/providers/stripetest"
)

// TestDrillUsageIsReportedOnceDespiteOutage also checks that the drill detects usage that another program sent to
// Stripe.
func TestDrillUsageIsReportedOnceDespiteOutage(t *testing.T) {
	fake := proc.Serve(t, stripetest.New(stripetest.Options{}))
	system := proc.Fresh(t, proc.Config{Env: []string{"STRIPE_API_BASE=" + fake}})
	api, worker := system.API(t), system.Worker(t)
	c := fill(t, system, api.URL, fake)

	var printed bytes.Buffer
	o := newOutage(proc.Drill{TB: t, Out: io.MultiWriter(&printed, t.Output())}, c, system.Temporal(t), worker)
	o.run()
	text := printed.String()
	require.Contains(t, text, "auto-sync/2")
	require.Regexp(t, `attempt \d+, "Stripe answered 503"`, text)
	require.Contains(t, text, "202 running")
	require.Equal(t, 14, strings.Count(text, " ok\n"))
	require.Contains(t, text, "nothing twice, nothing lost: OK")

	o.sendMeterEvent("cus_contoso")
	require.ErrorContains(t, o.prove(), "1 of 14 lines differ", "another program sent usage to Stripe")
}

// sendMeterEvent sends a meter event to the fake directly, so that Odometer has no record of it.
func (o *outage) sendMeterEvent(customer string) {
	o.Helper()
	key := "sk_test_" + strings.TrimPrefix(o.state().Accounts[0].ID, "acct_")
	form := "event_name=tokens&payload[value]=1&payload[stripe_customer_id]=" + customer
	status, text, err := proc.Call(o.Context(), http.MethodPost, o.StripeURL+"/v1/billing/meter_events", key, form)
	require.NoError(o, err)
	require.Equal(o, http.StatusOK, status, string(text))
}

// fill creates two tenants, fills them with the demo's data, and returns the configuration of the outage.
func fill(t *testing.T, system *proc.System, api string, fake string) config {
	t.Helper()
	hooks := proc.Serve(t, receiver.New(receiver.Secret))
	_, first := system.Tenant(t)
	id, key := system.Tenant(t)
	credentials, err := json.Marshal(map[string]string{
		"base_url": api, "admin_key": first, "webhook_receiver_url": hooks,
		"stripe_tenant_id": id, "stripe_admin_key": key, "stripe_fake_url": fake,
	})
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "credentials.json")
	require.NoError(t, os.WriteFile(path, credentials, 0o600))
	demo := exec.CommandContext(t.Context(), "go", "run", "../demo", "-credentials", path)
	demo.Env = append(os.Environ(), "WEBHOOK_SECRET="+receiver.Secret)
	out, err := demo.CombinedOutput()
	require.NoError(t, err, string(out))
	return configure(t, path)
}
