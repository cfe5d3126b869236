package workflows

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.temporal.io/sdk/client"
	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
	"github.com/odometer-metering/odometer/metering"
)

// messagesDue signals a DeliverWebhooks run that a message is due.
const messagesDue = "messages-due"

// DeliverWebhooksInput names the endpoint, and contains the state that a previous run passes on.
type DeliverWebhooksInput struct {
	TenantID   metering.TenantID     `json:"tenant_id"`
	EndpointID metering.EndpointID   `json:"endpoint_id"`
	Paused     bool                  `json:"paused,omitempty"`
	AtOnce     bool                  `json:"at_once,omitempty"` // an operator requested an attempt without waiting
	Result     DeliverWebhooksResult `json:"result"`
}

// DeliverWebhooksResult counts the work of a run.
type DeliverWebhooksResult struct {
	Delivered int `json:"delivered"` // messages
	Failed    int `json:"failed"`    // failed attempts
}

// DeliverWebhooks delivers messages to one endpoint, and ends after idleFor without a message.
// While the endpoint fails, the run waits for the next attempt. A message's row is committed before
// the run is signalled, and contains the time at which the message is due. The run shows its state
// to operators. Operators can pause the run or request an attempt without waiting.
func DeliverWebhooks(ctx workflow.Context, in DeliverWebhooksInput) (DeliverWebhooksResult, error) {
	d := deliverWebhooks{DeliverWebhooksInput: in, due: workflow.GetSignalChannel(ctx, messagesDue)}
	d.paused, d.atOnce = in.Paused, in.AtOnce
	if err := d.registerUpdateHandlers(ctx, in.TenantID); err != nil {
		return d.Result, err
	}
	return d.run(ctx)
}

// idleFor is the time for which a run stays open without messages. An endpoint with few messages
// then does not need a new run for each message.
const idleFor = 10 * time.Minute

// errDeleted ends a run because its endpoint was deleted.
var errDeleted = errors.New("the endpoint was deleted")

// deliverWebhooks is the state of a DeliverWebhooks run.
type deliverWebhooks struct {
	DeliverWebhooksInput
	operators
	due workflow.ReceiveChannel
}

// run delivers messages and waits in between, until the run ends or continues as a new run.
func (d *deliverWebhooks) run(ctx workflow.Context) (DeliverWebhooksResult, error) {
	for {
		sent, err := d.send(ctx)
		err = awaitUpdateHandlers(ctx, err)
		switch {
		case errors.Is(err, errDeleted):
			return d.Result, nil
		case errors.Is(err, errLongHistory):
			d.Paused, d.AtOnce = d.paused, d.atOnce
			return d.Result, workflow.NewContinueAsNewError(ctx, DeliverWebhooks, d.DeliverWebhooksInput)
		case err != nil:
			return d.Result, err
		case sent.Disabled != "" && d.due.Len() == 0: // a signal means that the endpoint may be enabled again
			return d.Result, temporal.NewNonRetryableApplicationError(disabledText(sent.Disabled), "webhook_disabled", nil)
		case sent.Next == nil && d.due.Len() == 0:
			more, err := d.idle(ctx)
			if err != nil || !more {
				return d.Result, awaitUpdateHandlers(ctx, err)
			}
		case sent.Next != nil:
			if err := d.wait(ctx, sent); err != nil {
				return d.Result, err
			}
		}
	}
}

// send waits while the run is paused, and then delivers the messages that are due.
func (d *deliverWebhooks) send(ctx workflow.Context) (sent activities.SendMessagesResult, err error) {
	if d.paused {
		d.show(ctx, sent, "paused by an operator")
		if err := d.awaitResume(ctx); err != nil {
			return sent, err
		}
	}
	if longHistory(ctx) {
		return sent, errLongHistory
	}
	drain(d.due)
	d.discardUpdates()
	in := activities.SendMessagesInput{TenantID: d.TenantID, EndpointID: d.EndpointID, AtOnce: d.atOnce}
	d.atOnce = false
	err = workflow.ExecuteActivity(webhookStep(ctx, "deliver due messages"), do.SendMessages, in).Get(ctx, &sent)
	if code, _, ok := failureOf(err); ok && code == string(metering.CodeNotFound) {
		return sent, errDeleted
	}
	d.Result.Delivered += sent.Delivered
	d.Result.Failed += sent.Failed
	d.show(ctx, sent, sent.Problem)
	return sent, err
}

// wait waits until the next message is due, a new message arrives or an operator sends an update.
func (d *deliverWebhooks) wait(ctx workflow.Context, sent activities.SendMessagesResult) error {
	now := workflow.Now(ctx)
	// If a message is already due, send at once, but only after progress. Without progress, wait:
	// the clock of the sending worker may be behind, so that no message is due for that worker yet.
	if !sent.Next.After(now) && sent.Delivered+sent.Failed > 0 {
		return nil
	}
	_, err := workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{
		Timeout:      max(time.Second, sent.Next.Sub(now)), // the activity reads the due times from the database
		TimerOptions: workflow.TimerOptions{Summary: fmt.Sprintf("%d waiting; %s", sent.Waiting, sent.Problem)},
	}, d.isWanted)
	return err
}

// idle waits up to idleFor for a message or an update, and reports whether one arrived.
func (d *deliverWebhooks) idle(ctx workflow.Context) (more bool, err error) {
	return workflow.AwaitWithOptions(ctx, workflow.AwaitOptions{
		Timeout:      idleFor,
		TimerOptions: workflow.TimerOptions{Summary: "no message is waiting"},
	}, d.isWanted)
}

// isWanted reports whether the run must stop waiting: a message or an update has arrived, or the run was paused.
func (d *deliverWebhooks) isWanted() bool { return d.due.Len() > 0 || d.asked.Len() > 0 || d.paused }

// show shows the counts and the state to operators.
func (d *deliverWebhooks) show(ctx workflow.Context, sent activities.SendMessagesResult, state string) {
	next := ""
	if sent.Next != nil {
		next = sent.Next.UTC().Format(time.RFC3339)
	}
	workflow.SetCurrentDetails(ctx, fmt.Sprintf("| delivered | failed attempts | waiting | next attempt | state |\n|---|---|---|---|---|\n| %d | %d | %d | %s | %s |\n",
		d.Result.Delivered, d.Result.Failed, sent.Waiting, next, state))
}

// disabledText returns the error of a run with a disabled endpoint.
func disabledText(because metering.DisabledBecause) string {
	switch because {
	case metering.DisabledGone:
		return "the webhook is disabled: it answered 410 Gone; enable it again once it accepts messages"
	case metering.DisabledFailing:
		return "the webhook is disabled: it has accepted no message for five days; enable it again once it accepts messages"
	}
	return "the tenant disabled the webhook; its waiting messages are not delivered"
}

// DeliverWebhooksID returns the workflow ID of the deliveries to an endpoint.
func DeliverWebhooksID(endpoint metering.EndpointID) string {
	return fmt.Sprintf("deliver-webhooks/%d", endpoint)
}

// deliverWebhooksStart returns the start of a run that delivers an endpoint's messages.
func deliverWebhooksStart(tenant metering.TenantID, endpoint metering.EndpointID) start {
	return start{
		workflow: DeliverWebhooks,
		input:    DeliverWebhooksInput{TenantID: tenant, EndpointID: endpoint},
		id:       DeliverWebhooksID(endpoint),
		summary:  fmt.Sprintf("Deliver messages to webhook %s of %s", endpoint, tenant),
		details:  "Delivers the waiting messages to one webhook, and waits between attempts while the webhook fails.",
		tenant:   tenant,
		priority: background,
		signal:   messagesDue,
	}
}

// StartDeliverWebhooks signals the open run or starts a new one, so that it checks for due
// messages.
func StartDeliverWebhooks(ctx context.Context, c client.Client, tenant metering.TenantID, endpoint metering.EndpointID) error {
	return deliverWebhooksStart(tenant, endpoint).startOrJoin(ctx, c)
}
