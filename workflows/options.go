// Package workflows says what happens next, when, how often and until when.
// A workflow does no I/O, reads no clock and no configuration, and holds
// nothing but what its history holds: internal ids and numbers.
package workflows

import (
	"cmp"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
)

// Task queues: calls to providers have one of their own, with a rate limit, and so has
// heavy work of tenants, which waits for its turn in the worker and would take the places
// of everything else.
const (
	TaskQueue         = "odometer"
	ProviderTaskQueue = "odometer-providers"
	HeavyTaskQueue    = "odometer-heavy"
)

// All are the workflows that a worker runs.
func All() []any {
	return []any{SyncCustomer, AutoSync, ClosePeriod, BackfillMeter, RotateCredential, Maintain, AuditUsage, RotateSecrets, HandleProviderEvent, HoldInvoice, DeliverWebhooks, EraseCustomer}
}

// do names the activities; their methods are never called here.
var do *activities.Activities

// How steps are tried again, by what fails in them. One without a last attempt
// is tried until it succeeds or somebody has to act.
var (
	untilStored   = temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second}
	untilAnswered = temporal.RetryPolicy{InitialInterval: 2 * time.Second, BackoffCoefficient: 2, MaximumInterval: 5 * time.Minute} // by a provider
	untilNextHour = temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second, MaximumAttempts: 10}
	notTriedAgain = temporal.RetryPolicy{MaximumAttempts: 1}
)

// storing is for a step in the database.
func storing(ctx workflow.Context, summary string) workflow.Context {
	return step(ctx, untilStored, workflow.ActivityOptions{StartToCloseTimeout: time.Minute, Summary: summary})
}

// counting is for a long step in the database that reports its progress.
func counting(ctx workflow.Context, summary string) workflow.Context {
	return step(ctx, untilStored, workflow.ActivityOptions{StartToCloseTimeout: 2 * time.Hour, Summary: summary})
}

// heavy is for a long step in the database for one tenant.
func heavy(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithTaskQueue(counting(ctx, summary), HeavyTaskQueue)
}

// maintenance makes a step one that the next hour would do as well.
func maintenance(ctx workflow.Context) workflow.Context {
	return workflow.WithRetryPolicy(ctx, untilNextHour)
}

// sending is for a while of calls to tenants' webhooks. What they bring is no
// failure of the step: its own are the database's.
func sending(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithTaskQueue(storing(ctx, summary), ProviderTaskQueue)
}

// minRetryWindow is how long a provider is tried although the deadline is near or over.
const minRetryWindow = time.Hour

// calling is for a call to a provider: it is tried, visibly, until the deadline.
func calling(ctx workflow.Context, deadline time.Time, summary string) workflow.Context {
	return step(ctx, untilAnswered, workflow.ActivityOptions{
		TaskQueue:              ProviderTaskQueue,
		StartToCloseTimeout:    30 * time.Second,
		ScheduleToCloseTimeout: max(minRetryWindow, deadline.Sub(workflow.Now(ctx))),
		Summary:                summary,
	})
}

// batchLimit is how long a batch holds up the customers after it while the
// provider answers nobody in it.
const batchLimit = time.Hour

// batching is for a batch of customers: while the provider fails, it is tried
// again, visibly, until others have waited long enough.
func batching(ctx workflow.Context, summary string) workflow.Context {
	return step(ctx, untilAnswered, workflow.ActivityOptions{
		TaskQueue: ProviderTaskQueue, StartToCloseTimeout: 30 * time.Minute, ScheduleToCloseTimeout: batchLimit, Summary: summary,
	})
}

// looking is for a call that only reads, of whose failure nobody has to know.
func looking(ctx workflow.Context, summary string) workflow.Context {
	return step(ctx, notTriedAgain, workflow.ActivityOptions{TaskQueue: ProviderTaskQueue, StartToCloseTimeout: time.Minute, Summary: summary})
}

// listingOnce is for many calls that only read: what is left of them the next run does.
func listingOnce(ctx workflow.Context, summary string) workflow.Context {
	return step(ctx, notTriedAgain, workflow.ActivityOptions{TaskQueue: ProviderTaskQueue, StartToCloseTimeout: 30 * time.Minute, Summary: summary})
}

// heartbeat is how soon the work of a worker that was killed is given to another.
const heartbeat = 10 * time.Second

func step(ctx workflow.Context, again temporal.RetryPolicy, options workflow.ActivityOptions) workflow.Context {
	options.TaskQueue = cmp.Or(options.TaskQueue, TaskQueue)
	options.HeartbeatTimeout = heartbeat
	options.RetryPolicy = &again
	return workflow.WithActivityOptions(ctx, options)
}

// failureOf is what an activity that is not tried again says should be done.
// ok is false where the failure says nothing of that kind.
func failureOf(err error) (code, message string, ok bool) {
	var failure *temporal.ApplicationError
	if errors.As(err, &failure) && failure.NonRetryable() {
		return failure.Type(), failure.Message(), true
	}
	return "", "", false
}
