package worker_test

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	historypb "go.temporal.io/api/history/v1"
	"go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// listener is a webhook of the system's tenant.
type listener struct {
	*system
	farEnd
	hook metering.Endpoint
}

// listen creates a webhook of the tenant for messages of these kinds.
func (s *system) listen(kinds ...metering.MessageKind) *listener {
	s.Helper()
	l := &listener{system: s, farEnd: newFarEnd(s)}
	sealed, err := s.keyring.Seal(s.tenant, seal.EndpointSecret, []byte(webhookSecret))
	require.NoError(s, err)
	l.hook, err = s.store.Webhooks.Create(s.Context(), s.tenant, metering.Operator, metering.Endpoint{
		URL: l.farEnd.url + "/canary-hook", EventTypes: kinds, Sealed: sealed, LastFour: "ZWY=",
	}, time.Now())
	require.NoError(s, err)
	return l
}

// heard waits until want messages were received, and returns their bodies by message id.
func (l *listener) heard(want int) map[string]string {
	l.Helper()
	heard := map[string]string{}
	dbtest.Eventually(l, func() error {
		for _, d := range l.farEnd.received() {
			require.True(l, d.SignatureValid)
			id := d.Headers["Webhook-Id"]
			if before, again := heard[id]; again {
				require.Equal(l, before, d.Body, "a repeat carries the same bytes")
			}
			heard[id] = d.Body
		}
		if len(heard) != want {
			return fmt.Errorf("%d messages of %d", len(heard), want)
		}
		return nil
	})
	return heard
}

// settled returns the number of deliveries by status.
func (l *listener) settled() (statuses map[metering.DeliveryStatus]int) {
	l.Helper()
	list, err := dbtest.Items(l.store.Deliveries.List(l.Context(), l.tenant, l.hook.ID, "", uuid.Nil, 1000))
	require.NoError(l, err)
	statuses = map[metering.DeliveryStatus]int{}
	for _, d := range list {
		statuses[d.Status]++
	}
	return statuses
}

// awaitSettled waits until the deliveries have these numbers by status.
func (l *listener) awaitSettled(want map[metering.DeliveryStatus]int) {
	l.Helper()
	dbtest.Eventually(l, func() error {
		if got := l.settled(); fmt.Sprint(got) != fmt.Sprint(want) {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
}

func TestWebhookReceivesMessagesOfSyncsAndClosedPeriods(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	l := s.listen(metering.MessageSyncSucceeded, metering.MessageSyncFailed, metering.MessagePeriodClosed)
	_, err := s.connect().Exec(t.Context(), `update customers set created_at = now() - interval '70 days' where tenant_id = $1`, s.tenant)
	require.NoError(t, err)
	grace := func(days int) {
		_, err := s.connect().Exec(t.Context(), `update tenants set grace = make_interval(days => $2) where id = $1`, s.tenant, days)
		require.NoError(t, err)
	}
	grace(100) // a worker closes due periods when it starts
	s.work()
	s.use("3")
	s.await(s.request())
	for _, body := range l.heard(1) {
		require.Contains(t, body, `"type":"sync.succeeded"`)
		require.Contains(t, body, `"customer_external_id":"canary-customer"`)
	}
	s.use("3")
	s.behave(`{"status":410,"times":1}`)
	s.await(s.request())
	l.heard(2)
	grace(3)
	run, err := s.temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: "test-close", TaskQueue: workflows.TaskQueue},
		workflows.ClosePeriod, workflows.ClosePeriodInput{TenantID: s.tenant})
	require.NoError(t, err)
	require.NoError(t, run.Get(t.Context(), nil))
	kinds := map[string]int{}
	dbtest.Eventually(t, func() error {
		clear(kinds)
		for _, d := range l.farEnd.received() {
			kind, _, _ := strings.Cut(d.Body, `","timestamp"`)
			kinds[kind]++
		}
		if kinds[`{"type":"period.closed`] == 0 {
			return fmt.Errorf("%v", kinds)
		}
		return nil
	})
	require.Equal(t, 1, kinds[`{"type":"sync.failed`])
}

// TestWorkersNotifySyncDelaysAndCredentialExpiriesOnce requires that a delay and an expiry are reported once, without a
// request. Two workers poll, and two runs of Maintain check.
func TestWorkersNotifySyncDelaysAndCredentialExpiriesOnce(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.use("1")
	delays, expiries := s.listen(metering.MessageSyncDelayed), s.listen(metering.MessageCredentialExpiring)
	sync := s.request()
	require.NoError(t, s.store.Syncs.Pause(t.Context(), s.tenant, s.steering(sync), time.Now()))
	key, err := s.store.Credentials.Create(t.Context(), s.tenant, metering.Operator, metering.APIKeyCredential,
		metering.Credential{Name: "ingest", Scope: metering.ScopeIngestOnly, LastFour: "abcd", ExpiresAt: new(time.Now().AddDate(0, 0, 5)), Hash: []byte("hash of " + s.tenant.String())}, time.Now())
	require.NoError(t, err)
	for _, statement := range []string{
		`update billing_syncs set requested_at = requested_at - interval '1 hour' where tenant_id = $1`,
		`update credentials set created_at = created_at - interval '30 days' where tenant_id = $1`,
	} {
		_, err := s.connect().Exec(t.Context(), statement, s.tenant)
		require.NoError(t, err)
	}
	s.work()
	s.work()
	for _, id := range []string{"test-maintain-1", "test-maintain-2"} {
		run, err := s.temporal.ExecuteWorkflow(t.Context(), client.StartWorkflowOptions{ID: id, TaskQueue: workflows.TaskQueue}, workflows.Maintain)
		require.NoError(t, err)
		require.NoError(t, run.Get(t.Context(), nil))
	}
	for _, body := range delays.heard(1) {
		require.Contains(t, body, sync.String())
		require.Contains(t, body, `"cause":"paused: for the test"`)
	}
	for _, body := range expiries.heard(1) {
		require.Contains(t, body, `"credential_id":"`+key.ID.String()+`"`)
	}
}

// TestDrillMessagesArriveThoughTheirWorkerIsKilled kills the worker and lets the webhook fail. Each message
// arrives, with the same id and bytes in every attempt. No message fails twice, because the attempt after the
// second failure follows five minutes later.
func TestDrillMessagesArriveThoughTheirWorkerIsKilled(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	l := s.listen(metering.MessageSyncSucceeded)
	const messages = 40
	happen := func() {
		require.NoError(t, s.store.Syncs.Record(t.Context(), s.tenant, s.customer.ID, ledger.Answer{}, time.Now(), time.Now()))
	}
	system := proc.New(t, proc.Config{DatabaseURL: s.database, TemporalAddress: temporalAddress(t), Env: []string{
		"TEMPORAL_NAMESPACE=" + s.namespace, "ODOMETER_ENCRYPTION_KEYS=" + testKey(),
	}})
	worker := system.Worker(t)
	delivered := func(want int) {
		l.awaitSettled(map[metering.DeliveryStatus]int{metering.DeliveryDelivered: want})
	}
	for i := range messages {
		happen()
		switch i {
		case 10:
			l.farEnd.behave(`{"drop_answer":true,"times":1}`)
		case 20:
			delivered(21)
			l.farEnd.behave(`{"delay_ms":3000,"times":4}`)
		case 24:
			l.heard(25)
			worker.Restart(t) // while messages are being delivered
		case 30:
			delivered(31)
			l.farEnd.behave(`{"status":503,"times":1}`)
		}
	}
	delivered(messages)
	require.Len(t, l.heard(messages), messages)
}

func TestHistoriesOfWebhooks(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	l := s.listen(metering.MessageSyncSucceeded)
	s.work()
	histories := map[string]*historypb.History{}
	id := workflows.DeliverWebhooksID(l.hook.ID)
	test := func() {
		_, err := s.store.Deliveries.Test(t.Context(), s.tenant, l.hook.ID, time.Now())
		require.NoError(t, err)
	}
	keep := func(name string) {
		dbtest.Eventually(t, func() error {
			histories[name] = s.history(id)
			open := openOf(histories[name])
			if open.timers == 0 || open.activities > 0 || open.workflowTasks > 0 {
				return fmt.Errorf("the run is not idle: %+v", open)
			}
			return nil
		})
	}
	test()
	l.heard(1)
	keep("deliver_webhooks")

	l.farEnd.behave(`{"status":503,"times":1}`)
	test()
	l.heard(2)
	test()
	l.awaitSettled(map[metering.DeliveryStatus]int{metering.DeliveryDelivered: 3})
	keep("deliver_webhooks_after_a_failure")

	l.farEnd.behave(`{"status":503,"times":1000}`)
	test()
	dbtest.Eventually(t, func() error {
		e, err := s.store.Webhooks.Get(t.Context(), s.tenant, l.hook.ID)
		if err == nil && e.FailingSince == nil {
			err = errors.New("it has not failed yet")
		}
		return err
	})
	require.NoError(t, s.update(id, "pause"))
	l.farEnd.behave(`{"times":0}`)
	require.NoError(t, s.update(id, "resume"))
	require.NoError(t, s.update(id, "retry-now"))
	l.awaitSettled(map[metering.DeliveryStatus]int{metering.DeliveryDelivered: 4})
	keep("deliver_webhooks_hastened_by_an_operator")

	l.farEnd.behave(`{"status":410,"times":1}`)
	test()
	l.awaitSettled(map[metering.DeliveryStatus]int{metering.DeliveryDelivered: 4, metering.DeliveryFailed: 1})
	require.ErrorContains(t, s.awaitClosed(id), "it answered 410")
	histories["deliver_webhooks_gone"] = s.history(id)
	keepHistories(t, histories)
}

// messages sends messages to a webhook that fails, becomes unreachable, and works again.
func (c *canary) messages() {
	far := newFarEnd(c)
	server := httptest.NewServer(nil)
	server.Close() // no server listens at its address
	kinds := []string{"sync.succeeded", "sync.failed", "period.closed", "invoice.held", "discrepancy.detected"}
	made := c.must(201, "POST", "/v1/webhooks", object{"url": far.url + "/canary-messages?token=canary", "event_types": kinds, "description": "canary", "secret": webhookSecret})
	path := "/v1/webhooks/" + made["id"].(string)
	c.secret("the secret of a webhook for messages", made["secret"].(string))
	c.must(422, "POST", "/v1/webhooks", object{"url": "https://canary:canary-password-in-a-url@example.com/", "event_types": kinds})
	c.must(422, "POST", "/v1/webhooks", object{"url": far.url, "event_types": []string{"canary"}})
	c.must(422, "POST", "/v1/webhooks", object{"url": far.url, "event_types": kinds, "secret": "whsec_canary"})
	rotated := c.must(201, "POST", path+"/rotate-secret", nil)
	c.secret("its next secret", rotated["secret"].(string))
	far.behave(`{"status":503,"times":1}`)
	status := c.must(202, "POST", path+"/test", nil)["status_url"].(string)
	await := func(want string) {
		dbtest.Eventually(c, func() error {
			if got := c.must(200, "GET", status, nil)["status"]; got != want {
				return fmt.Errorf("it is %v", got)
			}
			return nil
		})
	}
	await("delivered")
	c.must(200, "PATCH", path, object{"url": server.URL + "/canary-nobody"})
	status = c.must(202, "POST", path+"/test", nil)["status_url"].(string)
	dbtest.Eventually(c, func() error {
		if c.must(200, "GET", path, nil)["failing_since"] == nil {
			return errors.New("it does not fail yet")
		}
		return nil
	})
	c.must(200, "PATCH", path, object{"url": far.url + "/canary-messages", "enabled": true})
	c.must(202, "POST", status+"/redeliver", nil)
	await("delivered")
}
