package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	enumspb "go.temporal.io/api/enums/v1"
	failurepb "go.temporal.io/api/failure/v1"
	workflowpb "go.temporal.io/api/workflow/v1"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// openSync gives the tenant a sync of acme's that nobody has answered.
func (b *bundle) openSync(t *testing.T) client.SyncRun {
	t.Helper()
	a := b.send(t, "POST", "/v1/billing/sync", syncAcme)
	require.Equal(t, 202, a.status, a.body)
	var run client.SyncRun
	require.NoError(t, json.Unmarshal([]byte(a.body), &run))
	return run
}

func (b *bundle) readSync(t *testing.T, run client.SyncRun) (read client.SyncRun) {
	t.Helper()
	a := b.send(t, "GET", run.StatusUrl, "")
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &read))
	return read
}

func (b *bundle) steer(t *testing.T, run client.SyncRun, verb string) (steered client.SteeredSync) {
	t.Helper()
	a := b.send(t, "POST", run.StatusUrl+"/"+verb, "")
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &steered))
	return steered
}

func TestASyncThatIsNotOverSaysHowItStands(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.at(t, time.Now().UTC().Format(time.RFC3339), "a", "1")
	report := b.planned(t).Leased.ReportID
	run := b.openSync(t)
	require.NoError(t, b.store.Ledger.Release(t.Context(), b.tenant.ID, report, 1, "the webhook answered 503", false))
	next := time.Now().Add(time.Minute).UTC().Truncate(time.Second)
	b.temporal.runs.pending = []*workflowpb.PendingActivityInfo{{
		State: enumspb.PENDING_ACTIVITY_STATE_SCHEDULED, Attempt: 2, NextAttemptScheduleTime: timestamppb.New(next),
	}}
	read := b.readSync(t, run)
	require.EqualValues(t, 1, *read.Attempts)
	require.Equal(t, "the webhook answered 503", *read.LastError)
	require.Equal(t, next, *read.NextAttemptAt)
	require.False(t, *read.Paused)
	require.True(t, *read.EngineAnswered)

	b.temporal.deaf.Store(true)
	read = b.readSync(t, run)
	require.Equal(t, next, *read.NextAttemptAt, "Temporal knows it without a worker")
	require.Nil(t, read.Paused)
	require.False(t, *read.EngineAnswered)

	b.temporal.down.Store(true)
	read = b.readSync(t, run)
	require.EqualValues(t, 1, *read.Attempts)
	require.Equal(t, "the webhook answered 503", *read.LastError)
	require.Nil(t, read.NextAttemptAt)
	require.Nil(t, read.Paused)
	require.False(t, *read.EngineAnswered)

	listed := b.send(t, "GET", "/v1/billing/syncs", "").body
	require.Contains(t, listed, `"attempts":1,"last_error":"the webhook answered 503"}`)
}

// Where the provider's side cannot be read, no report is planned: Temporal knows
// how often that was tried.
func TestASyncThatCannotReadTheProviderSaysSo(t *testing.T) {
	t.Parallel()
	for code, shown := range map[string]string{
		string(metering.CodeProviderDown): "Stripe answered 503", "PanicError": "it could not be done yet",
	} {
		b := setup(t)
		b.provided(t)
		b.temporal.runs.pending = []*workflowpb.PendingActivityInfo{
			{State: enumspb.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED, Attempt: 9},
			{State: enumspb.PENDING_ACTIVITY_STATE_STARTED, Attempt: 3, LastFailure: &failurepb.Failure{
				Message:     "Stripe answered 503",
				FailureInfo: &failurepb.Failure_ApplicationFailureInfo{ApplicationFailureInfo: &failurepb.ApplicationFailureInfo{Type: code}},
			}},
		}
		read := b.readSync(t, b.openSync(t))
		require.EqualValues(t, 3, *read.Attempts)
		require.Equal(t, shown, *read.LastError)
		require.Nil(t, read.NextAttemptAt, "it is being tried")
	}
}

func TestASyncIsSteeredAndItIsWrittenDownByWhom(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	first, second := b.openSync(t), b.openSync(t)
	conflict := b.send(t, "POST", first.StatusUrl+"/resume", "").problem(t, 409, "conflict")
	require.Equal(t, "the sync is not paused; retry has it tried at once", conflict.Detail)

	paused := b.steer(t, first, "pause")
	require.True(t, *paused.Sync.Paused)
	require.Equal(t, []string{first.Id, second.Id}, paused.HoldsFor)
	require.Contains(t, paused.Note, "Auto-Sync")
	require.Equal(t, paused, b.steer(t, first, "pause"), "twice is the same as once")
	require.True(t, *b.readSync(t, second).Paused, "one run brings both")
	require.False(t, *b.steer(t, second, "resume").Sync.Paused)
	require.True(t, *b.steer(t, first, "pause").Sync.Paused)
	require.False(t, *b.steer(t, first, "retry").Sync.Paused)
	require.Equal(t, []string{"pause", "pause", "resume", "pause", "retry-now"}, b.temporal.runs.updates)

	cancelled := b.steer(t, second, "cancel")
	require.EqualValues(t, "failed", cancelled.Sync.Status)
	require.Equal(t, "the sync was interrupted; sync again", cancelled.Sync.Error)
	require.Nil(t, cancelled.Sync.Paused)
	require.Equal(t, paused.HoldsFor, cancelled.HoldsFor)
	require.EqualValues(t, "failed", b.readSync(t, first).Status)
	log := b.send(t, "GET", "/v1/audit-log", "").body
	for verb, sync := range map[string]string{"retry": first.Id, "pause": first.Id, "resume": second.Id, "cancel": second.Id} {
		require.Contains(t, log, `"action":"sync.`+verb+`","resource":"`+sync+`"`)
		p := b.send(t, "POST", first.StatusUrl+"/"+verb, "").problem(t, 409, "conflict")
		require.Equal(t, "the sync has failed; POST /v1/billing/sync requests another", p.Detail)
	}
}

func TestASyncWithoutARunIsSteered(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	acme, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	for _, verb := range []string{"retry", "pause", "cancel"} {
		sync, err := b.store.Syncs.Request(t.Context(), b.tenant.ID, metering.Operator, acme.ID, metering.Manual, time.Now())
		require.NoError(t, err)
		run := client.SyncRun{StatusUrl: "/v1/billing/syncs/" + sync.ID.String()}
		require.False(t, *b.readSync(t, run).Paused)
		steered := b.steer(t, run, verb).Sync
		require.Equal(t, verb == "cancel", steered.Paused == nil, verb)
		require.Equal(t, verb == "pause", steered.Paused != nil && *steered.Paused, verb)
		if verb != "cancel" {
			b.steer(t, run, "cancel")
		}
	}
}

func TestASyncThatSucceedsBeforeItIsCancelledHasSucceeded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	run := b.openSync(t)
	acme, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	begun, err := b.store.Syncs.Begin(t.Context(), b.tenant.ID, acme.ID, time.Now())
	require.NoError(t, err)
	_, err = b.store.Syncs.Finish(t.Context(), b.tenant.ID, acme.ID, db.Answer{Syncs: begun.Syncs}, time.Now())
	require.NoError(t, err)
	require.NoError(t, b.store.Syncs.Cancel(t.Context(), b.tenant.ID, metering.Operator, begun.Syncs[0], begun.Syncs, "cancelled", time.Now()))
	read := b.readSync(t, run)
	require.EqualValues(t, "succeeded", read.Status)
	require.Nil(t, read.Attempts)
	require.Nil(t, read.EngineAnswered)
}

func TestAnUnknownSyncIsNotSteeredAndWithoutTemporalNoneIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	run := b.openSync(t)
	for _, verb := range []string{"retry", "pause", "resume", "cancel"} {
		for _, id := range []string{"7", uuid.NewString()} {
			b.send(t, "POST", "/v1/billing/syncs/"+id+"/"+verb, "").problem(t, 404, "not_found")
		}
		setup(t).send(t, "POST", run.StatusUrl+"/"+verb, "").problem(t, 404, "not_found")
		for _, scope := range scopes {
			if scope != metering.ScopeAdmin {
				b.send(t, "POST", run.StatusUrl+"/"+verb, "", b.keyOf(t, b.tenant.ID, scope).headers("")...).problem(t, 403, "forbidden")
			}
		}
		b.temporal.down.Store(true)
		a := b.send(t, "POST", run.StatusUrl+"/"+verb, "")
		a.problem(t, 503, "unavailable")
		require.NotEmpty(t, a.header.Get("Retry-After"))
		b.temporal.down.Store(false)
	}
	require.EqualValues(t, "requested", b.readSync(t, run).Status)
	log := b.send(t, "GET", "/v1/audit-log", "").body
	require.Equal(t, 4, strings.Count(log, `"action":"sync.`), "what is refused is not written down")
	require.Equal(t, 4, strings.Count(log, `"resource":"`+run.Id+` unanswered"`), "it may have happened")
}
