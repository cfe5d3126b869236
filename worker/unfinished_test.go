package worker_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/interceptor"
	"go.temporal.io/sdk/temporal"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// refusals records the runs that a client starts, by workflow id, and starts none of them.
type refusals struct {
	interceptor.ClientInterceptorBase
	mu   sync.Mutex
	runs map[string]client.StartWorkflowOptions
}

func (r *refusals) InterceptClient(next interceptor.ClientOutboundInterceptor) interceptor.ClientOutboundInterceptor {
	refusing := &refusing{refusals: r}
	refusing.Next = next
	return refusing
}

// note records a start, and refuses it.
func (r *refusals) note(run client.StartWorkflowOptions) (client.WorkflowRun, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.runs[run.ID] = run
	return nil, errors.New("not this one")
}

// missing returns an error if one of the runs was not started.
func (r *refusals) missing(ids []string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if _, begun := r.runs[id]; !begun {
			return fmt.Errorf("%s was not begun", id)
		}
	}
	return nil
}

// customerOf returns the customer in the search attributes of a run.
func (r *refusals) customerOf(id string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	customer, _ := r.runs[id].TypedSearchAttributes.GetKeyword(temporal.NewSearchAttributeKeyKeyword("OdometerCustomer"))
	return customer
}

// refusing refuses every start of a run, and records it in refusals.
type refusing struct {
	interceptor.ClientOutboundInterceptorBase
	*refusals
}

func (r *refusing) ExecuteWorkflow(_ context.Context, in *interceptor.ClientExecuteWorkflowInput) (client.WorkflowRun, error) {
	return r.note(*in.Options)
}

func (r *refusing) SignalWithStartWorkflow(_ context.Context, in *interceptor.ClientSignalWithStartWorkflowInput) (client.WorkflowRun, error) {
	return r.note(*in.Options)
}

// TestWorkerTriesEachUnfinishedRowAlthoughOtherStartsFail creates an unfinished row of each kind, and two rows of
// some kinds. The client refuses every start of a run. The worker tries each row although the other starts fail.
func TestWorkerTriesEachUnfinishedRowAlthoughOtherStartsFail(t *testing.T) {
	t.Parallel()
	s := newSystem(t)
	refused := &refusals{runs: map[string]client.StartWorkflowOptions{}}
	refusing, err := client.Dial(client.Options{
		HostPort: temporalAddress(t), Namespace: s.namespace, Logger: quiet(), Interceptors: []interceptor.ClientInterceptor{refused},
		ConnectionOptions: client.ConnectionOptions{GetSystemInfoTimeout: dbtest.Deadline},
	})
	require.NoError(t, err)
	t.Cleanup(refusing.Close)
	s.workerClient = refusing

	active, err := s.store.Providers.Active(t.Context(), s.tenant)
	require.NoError(t, err)
	now := time.Now()
	long := now.Add(-2 * time.Minute)
	var want, closing []string
	customers := map[string]metering.CustomerID{} // by workflow id
	for _, name := range []string{"first", "second"} {
		customer := dbtest.Customer(t, s.store, s.tenant, name)
		_, err := s.connect().Exec(t.Context(), `update customers set billing_provider_id = external_id where id = $1`, customer.ID)
		require.NoError(t, err)
		_, err = s.store.Syncs.Request(t.Context(), s.tenant, metering.Operator, customer.ID, metering.Manual, long)
		require.NoError(t, err)
		event, _, err := s.store.ProviderEvents.Store(t.Context(), s.tenant, metering.ProviderEvent{
			Connection: active.ID, EventID: "evt_" + name, Kind: "invoice.created", Invoice: true, ObjectID: "in", Customer: name, MadeAt: now}, long)
		require.NoError(t, err)
		_, err = s.writer.Ingest(t.Context(), s.tenant, []metering.Event{dbtest.Event(t, name, customer.ExternalID, now, "1", "", "")})
		require.NoError(t, err)
		meter := dbtest.Meter(t, s.store, s.tenant, "of-"+name, name)
		held := s.holdOf(customer.ID, active.ID, meter.ID, long)
		old := dbtest.Tenant(t, s.store).ID
		dbtest.Customer(t, s.store, old, name)
		_, err = s.connect().Exec(t.Context(), `update customers set created_at = $2, billing_starts_at = $2 where tenant_id = $1`, old, now.AddDate(0, 0, -93))
		require.NoError(t, err)
		l := s.listen(metering.MessageSyncSucceeded)
		_, err = s.store.Deliveries.Test(t.Context(), s.tenant, l.hook.ID, now)
		require.NoError(t, err)
		for _, run := range []string{
			workflows.SyncCustomerID(s.tenant, customer.ID), workflows.HandleProviderEventID(s.tenant, event.Row), workflows.HoldInvoiceID(s.tenant, held),
		} {
			customers[run] = customer.ID
			want = append(want, run)
		}
		want = append(want, workflows.BackfillMeterID(s.tenant, meter.Version.ID), workflows.DeliverWebhooksID(l.hook.ID))
		closing = append(closing, workflows.ClosePeriodID(old))
	}
	for _, kind := range []metering.CredentialKind{metering.APIKeyCredential, metering.HMACSecretCredential, metering.WebhookCredential} {
		want = append(want, workflows.RotateCredentialID(s.tenant, s.rotated(kind, time.Hour).ID))
	}
	_, err = s.connect().Exec(t.Context(), `update credential_rotations set run_due_at = $2 where tenant_id = $1`, s.tenant, long)
	require.NoError(t, err)
	young, later := s.rotated(metering.APIKeyCredential, time.Hour), now.Add(time.Hour) // neither is due during the test
	_, err = s.connect().Exec(t.Context(), `update credential_rotations set run_due_at = $2 where tenant_id = $1 and id = $3`, s.tenant, later, young.ID)
	require.NoError(t, err)
	_, err = s.store.Syncs.Request(t.Context(), s.tenant, metering.Operator, s.customer.ID, metering.Manual, later)
	require.NoError(t, err)

	s.work()
	dbtest.Eventually(t, func() error { return refused.missing(want) })
	for run, customer := range customers {
		require.Equal(t, customer.String(), refused.customerOf(run), run)
	}
	for _, id := range []string{workflows.SyncCustomerID(s.tenant, s.customer.ID), workflows.RotateCredentialID(s.tenant, young.ID)} {
		require.Error(t, refused.missing([]string{id}), "its start may be under way")
	}
	dbtest.Eventually(t, func() error { return refused.missing(closing) })
}

// holdOf creates a hold of a customer's draft, recorded at an instant, and returns its id.
func (s *system) holdOf(customer metering.CustomerID, connection metering.ConnectionID, meter metering.MeterID, at time.Time) metering.HoldID {
	s.Helper()
	on := true
	_, _, err := s.store.Tenants.Update(s.Context(), s.tenant, metering.Operator, db.TenantChange{InvoiceHold: &on})
	require.NoError(s, err)
	in := metering.Invoice{
		ID: "in_" + customer.String(), Connection: connection, Customer: "cus", Subscription: "sub", Status: "draft", Renewal: true, Currency: "USD",
		Period: metering.Range{Start: at.AddDate(0, -1, 0), End: at}, CreatedAt: at,
	}
	require.NoError(s, s.store.Invoices.Save(s.Context(), s.tenant, customer, in, at))
	id, err := s.store.Holds.Begin(s.Context(), s.tenant, ledger.NewHold{
		Customer: customer, Invoice: in, Draft: billing.Draft{Automatic: true, Lines: []billing.DraftLine{{ID: "il", MeterID: meter}}},
		Frame: func(time.Time) (billing.Framed, error) { return billing.Framed{Body: []byte(`{}`)}, nil },
	}, at)
	require.NoError(s, err)
	return id
}
