package api_test

import (
	"encoding/json"
	"errors"
	"path"
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
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// openSync requests a sync of acme that no worker answers.
func (b *bundle) openSync(t *testing.T) client.SyncRun {
	t.Helper()
	a := b.send(t, "POST", "/v1/billing/sync", syncAcme)
	require.Equal(t, 202, a.status, a.body)
	var run client.SyncRun
	require.NoError(t, json.Unmarshal([]byte(a.body), &run))
	return run
}

// readSync returns the current state of a sync.
func (b *bundle) readSync(t *testing.T, run client.SyncRun) (read client.SyncRun) {
	t.Helper()
	a := b.send(t, "GET", run.StatusUrl, "")
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &read))
	return read
}

const steerBody = `{"reason":" because I may\n"}`

// steer pauses, resumes or cancels a sync.
func (b *bundle) steer(t *testing.T, run client.SyncRun, verb string) (steered client.SteeredSync) {
	t.Helper()
	a := b.send(t, "POST", run.StatusUrl+"/"+verb, steerBody)
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &steered))
	return steered
}

func TestOpenSyncShowsAttemptsAndLastError(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.at(t, b.now().UTC().Format(time.RFC3339), "a", "1")
	report := b.planned(t).Leased.ReportID
	run := b.openSync(t)
	require.NoError(t, b.store.Ledger.Release(t.Context(), b.tenant.ID, report, 1, "the webhook answered 503", false))
	next := b.now().Add(time.Minute).UTC().Truncate(time.Second)
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

// TestSyncShowsWhyProviderCannotBeRead checks a sync that cannot read the provider and thus plans no report.
// The number of attempts comes from Temporal.
func TestSyncShowsWhyProviderCannotBeRead(t *testing.T) {
	t.Parallel()
	for code, shown := range map[string]string{
		string(metering.CodeProviderDown): "Stripe answered 503", "PanicError": "the attempt failed and is retried",
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

func TestSyncActionsAreAppliedAndAudited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	first := b.openSync(t)
	joined := b.openSync(t)
	require.Equal(t, []string{first.Id, "This request joined an earlier request for the customer that was still waiting. One sync answers both."}, []string{joined.Id, *joined.Note})
	acme, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	_, err = b.store.Syncs.Begin(t.Context(), b.tenant.ID, acme.ID, b.now())
	require.NoError(t, err)
	second := b.openSync(t)
	require.Nil(t, second.Note)
	conflict := b.send(t, "POST", first.StatusUrl+"/resume", steerBody).problem(t, 409, "conflict")
	require.Equal(t, "the sync is not paused; to try it again at once, use retry", conflict.Detail)

	paused := b.steer(t, first, "pause")
	require.True(t, *paused.Sync.Paused)
	require.Equal(t, []string{first.Id, second.Id}, paused.HoldsFor)
	require.True(t, strings.HasPrefix(paused.Sync.Pause.By, "key_"), paused.Sync.Pause.By)
	require.Equal(t, "because I may", paused.Sync.Pause.Reason)
	require.Contains(t, paused.Note, "Auto-Sync")
	require.Equal(t, paused, b.steer(t, first, "pause"), "twice is the same as once")
	require.Equal(t, paused.Sync.Pause, b.readSync(t, second).Pause, "one run brings both")
	require.Equal(t, 2, strings.Count(b.send(t, "GET", "/v1/billing/syncs", "").body, `"paused":true,"pause":{"since":`))
	third := b.openSync(t)
	require.Equal(t, second.Id, third.Id)
	require.Equal(t, paused.Sync.Pause, third.Pause, "what is requested waits too")
	require.False(t, *b.steer(t, second, "resume").Sync.Paused)
	require.True(t, *b.steer(t, first, "pause").Sync.Paused)
	require.False(t, *b.steer(t, first, "retry").Sync.Paused)
	require.Nil(t, b.readSync(t, first).Pause)
	require.Equal(t, []string{"retry-now"}, b.temporal.runs.updates, "a pause is a row")

	canceled := b.steer(t, second, "cancel")
	require.EqualValues(t, "failed", canceled.Sync.Status)
	require.Equal(t, "the sync was interrupted; sync again", canceled.Sync.Error)
	require.Nil(t, canceled.Sync.Paused)
	require.Equal(t, paused.HoldsFor, canceled.HoldsFor)
	require.EqualValues(t, "failed", b.readSync(t, first).Status)
	log := b.send(t, "GET", "/v1/audit-log", "").body
	for verb, sync := range map[string]string{"retry": first.Id, "pause": first.Id, "resume": second.Id, "cancel": second.Id} {
		require.Contains(t, log, `"action":"sync.`+verb+`","resource":"`+sync+`","reason":"because I may"`)
		p := b.send(t, "POST", first.StatusUrl+"/"+verb, steerBody).problem(t, 409, "conflict")
		require.Equal(t, "the sync has already failed; request another with POST /v1/billing/sync", p.Detail)
	}
}

func TestSyncWithoutRunIsRetriedPausedAndCanceled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	acme, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	for _, verb := range []string{"retry", "pause", "cancel"} {
		sync, err := b.store.Syncs.Request(t.Context(), b.tenant.ID, metering.Operator, acme.ID, metering.Manual, b.now())
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

func TestASyncThatSucceedsBeforeItIsCanceledHasSucceeded(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	run := b.openSync(t)
	acme, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	begun, err := b.store.Syncs.Begin(t.Context(), b.tenant.ID, acme.ID, b.now())
	require.NoError(t, err)
	_, err = b.store.Syncs.Finish(t.Context(), b.tenant.ID, acme.ID, begun.PassID, ledger.Answer{}, b.now())
	require.NoError(t, err)
	id := uuid.MustParse(path.Base(run.StatusUrl))
	by := ledger.Steering{Actor: metering.Operator, Sync: id, Customer: acme.ID}
	require.NoError(t, b.store.Syncs.Cancel(t.Context(), b.tenant.ID, by, []uuid.UUID{id}, "canceled", b.now(), func() error {
		return errors.New("the run may be another sync's by now")
	}))
	read := b.readSync(t, run)
	require.EqualValues(t, "succeeded", read.Status)
	require.Nil(t, read.Attempts)
	require.Nil(t, read.EngineAnswered)
}

// TestARunThatIsPausedInTheTemporalUIIsResumed checks a run that was paused in the Temporal UI. The run itself
// reports that it is paused.
func TestARunThatIsPausedInTheTemporalUIIsResumed(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	run := b.openSync(t)
	for id := range b.temporal.runs.paused {
		b.temporal.runs.paused[id] = true
	}
	read := b.readSync(t, run)
	require.True(t, *read.Paused)
	require.Nil(t, read.Pause)
	require.False(t, *b.steer(t, run, "resume").Sync.Paused)
	require.Equal(t, []string{"resume"}, b.temporal.runs.updates)
}

func TestEveryOperatorActionRequiresReason(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	run := b.openSync(t)
	paths := []string{resolvePath(uuid.New())}
	for _, verb := range []string{"retry", "pause", "resume", "cancel"} {
		paths = append(paths, run.StatusUrl+"/"+verb)
		b.send(t, "POST", run.StatusUrl+"/"+verb, "").problem(t, 400, "malformed")
	}
	for _, path := range paths {
		for _, reason := range []string{`""`, `" \n "`, `"\u0000"`, `7`, `"` + strings.Repeat("ä", 501) + `"`} {
			body := `{"reason":` + reason + `}`
			if strings.HasSuffix(path, "resolve") {
				body = `{"state":"accepted","reason":` + reason + `}`
			}
			require.Equal(t, "body.reason", b.send(t, "POST", path, body).problem(t, 422, "invalid").Errors[0].Location, body)
		}
	}
	require.Equal(t, 1, strings.Count(b.send(t, "GET", "/v1/audit-log?action=sync.", "").body, `"action":`), "that it was requested")
	require.False(t, *b.readSync(t, run).Paused)
}

func TestUnknownSyncIsRefusedAndRetryAndCancelNeedTemporal(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.provided(t)
	run := b.openSync(t)
	for _, verb := range []string{"retry", "pause", "resume", "cancel"} {
		for _, id := range []string{"7", uuid.NewString()} {
			b.send(t, "POST", "/v1/billing/syncs/"+id+"/"+verb, steerBody).problem(t, 404, "not_found")
		}
		setup(t).send(t, "POST", run.StatusUrl+"/"+verb, steerBody).problem(t, 404, "not_found")
		for _, scope := range scopes {
			if scope != metering.ScopeAdmin {
				b.send(t, "POST", run.StatusUrl+"/"+verb, steerBody, b.keyOf(t, b.tenant.ID, scope).headers("")...).problem(t, 403, "forbidden")
			}
		}
		b.temporal.down.Store(true)
		a := b.send(t, "POST", run.StatusUrl+"/"+verb, steerBody)
		if verb == "pause" || verb == "resume" {
			require.Equal(t, 200, a.status, "it is a row")
		} else {
			a.problem(t, 503, "unavailable")
			require.NotEmpty(t, a.header.Get("Retry-After"))
		}
		b.temporal.down.Store(false)
	}
	require.EqualValues(t, "requested", b.readSync(t, run).Status)
	log := b.send(t, "GET", "/v1/audit-log", "").body
	require.Equal(t, 1+4, strings.Count(log, `"action":"sync.`), "beside the request, what is refused is not written down")
	require.Equal(t, 2, strings.Count(log, `"resource":"`+run.Id+` unanswered"`), "it may have happened")
}
