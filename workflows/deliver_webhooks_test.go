package workflows_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/mock"
	"github.com/stretchr/testify/require"
	"go.temporal.io/sdk/converter"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/testsuite"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// delivering is an endpoint with messages that are due at given times.
type delivering struct {
	*testsuite.TestWorkflowEnvironment
	due     []time.Duration // after the start
	failing time.Duration   // time after the start until which the endpoint fails
	behind  time.Duration   // time by which the worker's clock is behind
	began   time.Time
	sent    []time.Duration
	asked   []activities.SendMessagesInput
	end     error
	off     metering.DisabledBecause
	enable  func() // called when a run finds the endpoint disabled
}

// newDelivering returns an endpoint with messages that are due after the given times.
func newDelivering(t *testing.T, due ...time.Duration) *delivering {
	t.Helper()
	d := &delivering{TestWorkflowEnvironment: newEnvironment(), due: due}
	d.began = d.Now()
	d.RegisterActivity(do)
	recorded(d.TestWorkflowEnvironment)
	d.OnActivity(do.SendMessages, mock.Anything, mock.Anything).Return(d.send)
	return d
}

// send mocks the activity SendMessages.
func (d *delivering) send(_ context.Context, in activities.SendMessagesInput) (result activities.SendMessagesResult, err error) {
	d.asked = append(d.asked, in)
	if d.end != nil || d.off != "" {
		result.Disabled = d.off
		if d.enable != nil {
			d.enable()
		}
		return result, d.end
	}
	now := d.Now().Sub(d.began) - d.behind
	var left []time.Duration
	for _, due := range d.due {
		switch {
		case due > now && !in.AtOnce:
			left = append(left, due)
		case now < d.failing && !in.AtOnce:
			result.Failed++
			result.Problem = "the webhook answered 503"
			left = append(left, now+5*time.Minute)
		default:
			result.Delivered++
			d.sent = append(d.sent, now)
		}
	}
	d.due = left
	result.Waiting = len(left)
	for _, due := range left {
		if at := d.began.Add(due); result.Next == nil || at.Before(*result.Next) {
			result.Next = &at
		}
	}
	return result, nil
}

// run runs DeliverWebhooks until the run succeeds, and returns its result.
func (d *delivering) run(t *testing.T) (result workflows.DeliverWebhooksResult) {
	t.Helper()
	d.ExecuteWorkflow(workflows.DeliverWebhooks, workflows.DeliverWebhooksInput{TenantID: 1, EndpointID: 7})
	require.True(t, d.IsWorkflowCompleted())
	require.NoError(t, d.GetWorkflowError())
	require.NoError(t, d.GetWorkflowResult(&result))
	return result
}

func TestDueMessagesAreDeliveredAndRunEnds(t *testing.T) {
	d := newDelivering(t, 0, 0, 0)
	require.Equal(t, workflows.DeliverWebhooksResult{Delivered: 3}, d.run(t))
	require.Equal(t, []activities.SendMessagesInput{{TenantID: 1, EndpointID: 7}}, d.asked)
}

func TestDeliverWebhooksRunStaysOpenBetweenMessages(t *testing.T) {
	d := newDelivering(t, 0)
	for after := 9 * time.Minute; after < time.Hour; after += 9 * time.Minute {
		d.RegisterDelayedCallback(func() {
			d.due = append(d.due, after)
			d.SignalWorkflow("messages-due", nil)
		}, after)
	}
	require.Equal(t, workflows.DeliverWebhooksResult{Delivered: 7}, d.run(t))
	require.Equal(t, d.began.Add(54*time.Minute+10*time.Minute).Round(time.Minute), d.Now().Round(time.Minute), "and it ends ten minutes after the last")
}

func TestDeliverWebhooksShowsRetriesOfFailingEndpoint(t *testing.T) {
	d := newDelivering(t, 0, 0)
	d.failing = 12 * time.Minute
	began := d.began
	d.RegisterDelayedCallback(func() {
		require.Equal(t, "| delivered | failed attempts | waiting | next attempt | state |\n|---|---|---|---|---|\n| 0 | 4 | 2 | "+
			began.Add(10*time.Minute).UTC().Format(time.RFC3339)+" | the webhook answered 503 |\n", detailsOf(t, d.TestWorkflowEnvironment))
	}, 6*time.Minute)
	require.Equal(t, workflows.DeliverWebhooksResult{Delivered: 2, Failed: 6}, d.run(t))
	require.Equal(t, []time.Duration{15 * time.Minute, 15 * time.Minute}, rounded(d.sent))
}

// rounded rounds each duration to minutes.
func rounded(all []time.Duration) (minutes []time.Duration) {
	for _, d := range all {
		minutes = append(minutes, d.Round(time.Minute))
	}
	return minutes
}

func TestNewMessageIsDeliveredWhileRunWaitsForLaterMessage(t *testing.T) {
	d := newDelivering(t, time.Hour)
	d.RegisterDelayedCallback(func() {
		d.due = append(d.due, 10*time.Minute)
		d.SignalWorkflow("messages-due", nil)
	}, 10*time.Minute)
	require.Equal(t, workflows.DeliverWebhooksResult{Delivered: 2}, d.run(t))
	require.Equal(t, []time.Duration{10 * time.Minute, time.Hour}, rounded(d.sent))
}

func TestWebhookRunDoesNotBusyLoopIfClockIsBehind(t *testing.T) {
	d := newDelivering(t, 5*time.Second)
	d.behind = 20 * time.Second
	require.Equal(t, workflows.DeliverWebhooksResult{Delivered: 1}, d.run(t))
	require.LessOrEqual(t, len(d.asked), 30, "a look each second")
}

func TestOperatorsPauseResumeAndRetryWebhookRun(t *testing.T) {
	d := newDelivering(t, 0)
	d.failing = 24 * time.Hour
	ask := func(after time.Duration, update string) {
		d.RegisterDelayedCallback(func() {
			d.UpdateWorkflowNoRejection(update, update, t, asks)
		}, after)
	}
	ask(time.Minute, "pause")
	d.RegisterDelayedCallback(func() {
		require.Contains(t, detailsOf(t, d.TestWorkflowEnvironment), "paused by an operator")
		require.Len(t, d.asked, 1)
	}, time.Hour)
	ask(2*time.Hour, "resume")
	ask(2*time.Hour+time.Minute, "retry-now")
	require.Equal(t, workflows.DeliverWebhooksResult{Delivered: 1, Failed: 2}, d.run(t))
	require.Equal(t, []time.Duration{2*time.Hour + time.Minute}, rounded(d.sent))
	require.True(t, d.asked[2].AtOnce)
}

func TestDeliverWebhooksFailsWithReasonIfEndpointIsDisabled(t *testing.T) {
	for because, want := range map[metering.DisabledBecause]string{
		metering.DisabledGone:     "it answered 410",
		metering.DisabledFailing:  "it has accepted no message for five days",
		metering.DisabledByTenant: "the tenant disabled the webhook",
	} {
		d := newDelivering(t)
		d.off = because
		d.ExecuteWorkflow(workflows.DeliverWebhooks, workflows.DeliverWebhooksInput{TenantID: 1, EndpointID: 7})
		var failure *temporal.ApplicationError
		require.ErrorAs(t, d.GetWorkflowError(), &failure)
		require.Equal(t, "webhook_disabled", failure.Type())
		require.Contains(t, failure.Message(), want)
	}
}

func TestDeliverWebhooksContinuesIfEndpointIsEnabledAgain(t *testing.T) {
	d := newDelivering(t, 0)
	d.off = metering.DisabledByTenant
	d.enable = func() {
		d.off = ""
		d.SignalWorkflow("messages-due", nil)
	}
	require.Equal(t, workflows.DeliverWebhooksResult{Delivered: 1}, d.run(t))
}

func TestARunOfADeletedEndpointEnds(t *testing.T) {
	d := newDelivering(t)
	d.end = activities.Failure(metering.Errorf(metering.CodeNotFound, "there is no such webhook"))
	require.Equal(t, workflows.DeliverWebhooksResult{}, d.run(t))
}

func TestLongWebhookRunContinuesAsNew(t *testing.T) {
	d := newDelivering(t, time.Hour)
	d.RegisterDelayedCallback(func() {
		d.SetContinueAsNewSuggested(true)
		d.SignalWorkflow("messages-due", nil)
	}, time.Minute)
	d.ExecuteWorkflow(workflows.DeliverWebhooks, workflows.DeliverWebhooksInput{TenantID: 1, EndpointID: 7, Result: workflows.DeliverWebhooksResult{Delivered: 5}})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, d.GetWorkflowError(), &next)
}

func TestRetryNowSendsMessagesOfPausedWebhookRun(t *testing.T) {
	d := newDelivering(t, 0)
	d.failing = 24 * time.Hour
	for after, update := range map[time.Duration]string{time.Minute: "pause", 2 * time.Hour: "retry-now"} {
		d.RegisterDelayedCallback(func() { d.UpdateWorkflowNoRejection(update, update, t, asks) }, after)
	}
	require.Equal(t, workflows.DeliverWebhooksResult{Delivered: 1, Failed: 1}, d.run(t))
	require.Equal(t, []time.Duration{2 * time.Hour}, rounded(d.sent))
}

func TestRetryNowIsHandledAfterContinueAsNew(t *testing.T) {
	d := newDelivering(t, 0)
	d.failing = 24 * time.Hour
	d.RegisterDelayedCallback(func() {
		d.SetContinueAsNewSuggested(true)
		d.UpdateWorkflowNoRejection("retry-now", "retry-now", t, asks)
	}, time.Minute)
	d.ExecuteWorkflow(workflows.DeliverWebhooks, workflows.DeliverWebhooksInput{TenantID: 1, EndpointID: 7})
	var next *workflow.ContinueAsNewError
	require.ErrorAs(t, d.GetWorkflowError(), &next)
	var input workflows.DeliverWebhooksInput
	require.NoError(t, converter.GetDefaultDataConverter().FromPayloads(next.Input, &input))

	d = newDelivering(t, 0)
	d.failing = 24 * time.Hour
	d.ExecuteWorkflow(workflows.DeliverWebhooks, input)
	require.NoError(t, d.GetWorkflowError())
	require.Equal(t, []time.Duration{0}, rounded(d.sent))
}
