package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	sdkpb "go.temporal.io/api/sdk/v1"
	"go.temporal.io/sdk/client"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// TestOperatorsSteerAnOpenRun sends updates as the Temporal UI does.
func TestOperatorsSteerAnOpenRun(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	storage := dbtest.Meter(t, s.store, s.tenant, "storage", "stored")
	s.work()
	run := workflows.SyncCustomerID(s.tenant, s.customer.ID)
	s.use("5")
	s.behave(`{"status":503,"times":1000}`)
	first := s.request()
	s.awaitDeliveries(1)

	require.ErrorContains(t, s.update(run, "exclude-meter", map[string]any{"by": "ada", "reason": "another price comes", "meter_id": 0}), "meter_id must be a positive number")
	require.ErrorContains(t, s.update(run, "exclude-meter", map[string]any{"by": "ada", "reason": "another price comes", "meter_id": "storage"}), "unable to decode")
	require.ErrorContains(t, s.update(run, "exclude-meter", map[string]any{"by": "ada", "reason": "another price comes", "meter_id": "storage"}), `meter_id must be a meter's id, such as "mtr_137" or 137`)
	require.ErrorContains(t, s.update(run, "exclude-meter", map[string]any{"by": "ada", "reason": "another price comes", "meter_id": "mtr_0"}), "meter_id must be a positive number")
	require.ErrorContains(t, s.update(run, "exclude-meter", map[string]any{"meter_id": 7}), "by must be")
	require.ErrorContains(t, s.update(run, "pause", map[string]any{"by": "ada"}), "reason must not be empty")
	require.ErrorContains(t, s.update(run, "no-such-update"), "unknown update")
	require.Zero(t, s.events(run, enumspb.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED), "what is refused leaves no trace")

	require.NoError(t, s.update(run, "pause"))
	s.awaitDetails(run, "paused by an operator")
	s.awaitIdle(run)
	s.behave(`{"times":0}`)
	paused := len(s.received())
	_, err := s.writer.Ingest(t.Context(), s.tenant, []metering.Event{dbtest.Event(t, "stored", s.customer.ExternalID, time.Now(), "3", "", "")})
	require.NoError(t, err)
	second := s.request()
	require.NoError(t, s.update(run, "exclude-meter", map[string]any{"by": "ada", "reason": "another price comes", "meter_id": storage.ID.String()}))
	s.awaitIdle(run)
	require.Len(t, s.received(), paused, "whatever comes, nothing is sent")

	require.NoError(t, s.update(run, "resume"))
	require.Equal(t, metering.SyncSucceeded, s.await(first).Status)
	without := s.await(second)
	require.Equal(t, metering.SyncSucceeded, without.Status)
	for _, delivery := range s.received() {
		require.NotContains(t, delivery.Body, `"usage":3`)
	}
	require.NoError(t, s.awaitClosed(run))
	next := s.await(s.request())
	require.Len(t, next.Lines, 2, "the next run brings the meter")
	require.Contains(t, s.received()[len(s.received())-1].Body, `"usage":3`)
}

// TestUpdateExamplesInTemporalDocsWork sends the updates of docs/operating/temporal.md.
func TestUpdateExamplesInTemporalDocsWork(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	storage := dbtest.Meter(t, s.store, s.tenant, "storage", "stored")
	s.work()
	s.use("5")
	s.behave(`{"status":503,"times":1000}`)
	s.request()
	s.awaitDeliveries(1)
	text, err := os.ReadFile("../docs/operating/temporal.md")
	require.NoError(t, err)
	examples := regexp.MustCompile(`(?m)^temporal workflow update execute --workflow-id sync-customer/2/10 --name (\S+) --input '(.*)'$`).FindAllStringSubmatch(string(text), -1)
	require.Len(t, examples, 3)
	run := workflows.SyncCustomerID(s.tenant, s.customer.ID)
	for _, example := range examples {
		require.NoError(t, s.update(run, example[1], json.RawMessage(strings.ReplaceAll(example[2], "mtr_7", storage.ID.String()))))
		entries, err := dbtest.Items(s.store.AuditLog.List(t.Context(), s.tenant, access.AuditFilter{Action: "run." + example[1]}, 0, 10))
		require.NoError(t, err)
		require.Len(t, entries, 1)
		require.Equal(t, metering.Operator, entries[0].Actor)
		require.Equal(t, run, entries[0].Resource)
		require.Contains(t, example[2], entries[0].Reason)
		require.Contains(t, string(entries[0].After), `"by":"ada"`)
	}
	require.ErrorContains(t, s.update(run, "exclude-meter", json.RawMessage(`{"by":"ada","reason":"a slip","meter_id":"mtr_999999"}`)), "it has no meter mtr_999999")
}

func TestRetryNowRetriesWaitingReportImmediately(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	s.work()
	run := workflows.SyncCustomerID(s.tenant, s.customer.ID)
	s.use("5")
	s.behave(`{"status":503,"times":1000}`)
	sync := s.request()
	s.awaitDeliveries(4) // the next retry interval is sixteen seconds
	require.NoError(t, s.update(run, "retry-now"))
	s.behave(`{"times":0}`) // not earlier, or the run may end before the update
	require.Equal(t, metering.SyncSucceeded, s.await(sync).Status)
	require.Equal(t, 1, s.events(run, enumspb.EVENT_TYPE_ACTIVITY_TASK_CANCEL_REQUESTED), "the attempt that waited gave way")
}

// TestRunDetailsLinkToCustomer follows the link in a run's details to the customer of the run.
func TestRunDetailsLinkToCustomer(t *testing.T) {
	t.Parallel()
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: temporalAddress(t), Env: []string{"BASE_URL=https://usage.example.com/odometer/"}})
	tenant, key := system.Tenant(t)
	far := newFarEnd(t)
	api := caller{system.API(t).URL, key}
	system.Worker(t)
	api.must(t, 201, http.MethodPost, "/v1/meters", map[string]any{"slug": "api-calls", "event_type": "api_call"})
	api.must(t, 200, http.MethodPut, "/v1/billing/provider", map[string]any{"type": "webhook", "url": far.url + "/usage", "secret": webhookSecret})
	api.ingest(t, map[string]any{"event_type": "api_call", "customer_id": "acme", "value": 1})
	require.Contains(t, string(api.ended(t, "acme")), `"status":"succeeded"`)

	customer := func(path string) (id string) {
		status, answer := api.awaitAnswer(t, http.MethodGet, path, nil)
		require.Equal(t, 200, status, "%s", answer)
		return regexp.MustCompile(`"cus_[0-9]+"`).FindString(string(answer))
	}
	acme := customer("/v1/customers/acme")
	temporal := proc.Temporal(t, temporalAddress(t), system.Namespace)
	numbers := strings.NewReplacer("ten_", "", "cus_", "", `"`, "")
	details, err := currentDetails(t.Context(), temporal, "sync-customer/"+numbers.Replace(tenant+"/"+acme))
	require.NoError(t, err)
	link := regexp.MustCompile(`^Pass [0-9]+ of \[cus_[0-9]+\]\(https://usage.example.com/odometer(/v1/[^)]+)\)
`).FindStringSubmatch(details)
	require.Len(t, link, 2, details)
	require.Equal(t, acme, customer(link[1]))
}

// asks is the name and the reason in the updates of tests.
var asks = metering.Asked{By: "ada", Reason: "the receiver is being moved"}

// update sends an update to a run as the Temporal UI does, and waits for the answer.
func (s *system) update(run, name string, args ...any) error {
	s.Helper()
	if len(args) == 0 {
		args = []any{asks}
	}
	handle, err := s.temporal.UpdateWorkflow(s.Context(), client.UpdateWorkflowOptions{
		WorkflowID: run, UpdateName: name, Args: args, WaitForStage: client.WorkflowUpdateStageCompleted,
	})
	if err != nil {
		return err
	}
	return handle.Get(s.Context(), nil)
}

// awaitDetails waits until the details of the run contain the text.
func (s *system) awaitDetails(run, text string) {
	s.Helper()
	dbtest.Eventually(s, func() error {
		details, err := currentDetails(s.Context(), s.temporal, run)
		if err == nil && !strings.Contains(details, text) {
			err = fmt.Errorf("operators see %q", details)
		}
		return err
	})
}

// currentDetails returns the details of the run that Temporal shows.
func currentDetails(ctx context.Context, c client.Client, run string) (string, error) {
	described, err := c.QueryWorkflow(ctx, run, "", "__temporal_workflow_metadata")
	if err != nil {
		return "", err
	}
	var metadata sdkpb.WorkflowMetadata
	err = described.Get(&metadata)
	return metadata.GetCurrentDetails(), err
}

// awaitDeliveries waits until the receiver has this number of deliveries.
func (s *system) awaitDeliveries(atLeast int) {
	s.Helper()
	dbtest.Eventually(s, func() error {
		if got := len(s.received()); got < atLeast {
			return fmt.Errorf("%d deliveries", got)
		}
		return nil
	})
}

// awaitIdle waits until the run has no pending activity.
func (s *system) awaitIdle(run string) {
	s.Helper()
	dbtest.Eventually(s, func() error {
		described, err := s.temporal.DescribeWorkflowExecution(s.Context(), run, "")
		if err == nil && len(described.GetPendingActivities()) > 0 {
			err = fmt.Errorf("%d activities are open", len(described.GetPendingActivities()))
		}
		return err
	})
}

// events returns the number of events of a kind in a run's history.
func (s *system) events(run string, kind enumspb.EventType) (n int) {
	s.Helper()
	for _, event := range s.history(run).GetEvents() {
		if event.GetEventType() == kind {
			n++
		}
	}
	return n
}
