// Package workflows defines the workflows: the order of their steps, and the time, frequency and
// retries of each step. A workflow does no I/O and reads neither the system clock nor the
// configuration. Its state comes from its history only: internal ids, but no external ids or
// secrets.
package workflows

import (
	"cmp"
	"errors"
	"time"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/odometer-metering/odometer/activities"
)

// Task queues. Calls to providers have their own queue, because that queue has a rate limit. Heavy
// work of tenants also has its own queue: heavy activities wait inside a worker for each other, and
// would occupy the slots of other activities.
const (
	TaskQueue         = "odometer"
	ProviderTaskQueue = "odometer-providers"
	HeavyTaskQueue    = "odometer-heavy"
)

// All returns the workflows that a worker registers.
func All() []any {
	return []any{SyncCustomer, AutoSync, ClosePeriod, BackfillMeter, RotateCredential, Maintain, AuditUsage, RotateSecrets, HandleProviderEvent, HoldInvoice, DeliverWebhooks, EraseCustomer}
}

// do provides the activities' names to the SDK. Its methods are never called here.
var do *activities.Activities

// Retry policies of steps. A policy without MaximumAttempts retries until the step succeeds, fails
// with a non-retryable error, or reaches its ScheduleToCloseTimeout.
var (
	untilStored   = temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second}
	untilAnswered = temporal.RetryPolicy{InitialInterval: 2 * time.Second, BackoffCoefficient: 2, MaximumInterval: 5 * time.Minute} // for calls to providers
	untilNextHour = temporal.RetryPolicy{InitialInterval: time.Second, BackoffCoefficient: 2, MaximumInterval: 30 * time.Second, MaximumAttempts: 10}
	notTriedAgain = temporal.RetryPolicy{MaximumAttempts: 1}
)

// retriesExpired reports whether a step failed because its retries took too long.
func retriesExpired(err error) bool {
	_, _, refused := failureOf(err)
	return err != nil && !refused && !temporal.IsCanceledError(err)
}

// shortStep returns the context of a short database step.
func shortStep(ctx workflow.Context, summary string) workflow.Context {
	return withOptions(ctx, untilStored, workflow.ActivityOptions{StartToCloseTimeout: time.Minute, Summary: summary})
}

// longStep returns the context of a long database step that reports its progress in heartbeats.
func longStep(ctx workflow.Context, summary string) workflow.Context {
	return withOptions(ctx, untilStored, workflow.ActivityOptions{StartToCloseTimeout: 2 * time.Hour, Summary: summary})
}

// heavyStep returns the context of a long database step for one tenant.
func heavyStep(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithTaskQueue(longStep(ctx, summary), HeavyTaskQueue)
}

// withFewRetries limits the attempts of a maintenance step, because the next hour's run repeats it.
func withFewRetries(ctx workflow.Context) workflow.Context {
	return workflow.WithRetryPolicy(ctx, untilNextHour)
}

// webhookStep returns the context of a step that calls a tenant's webhook. A failed delivery is part of the step's
// result. The step's errors are errors of the database.
func webhookStep(ctx workflow.Context, summary string) workflow.Context {
	return workflow.WithTaskQueue(shortStep(ctx, summary), ProviderTaskQueue)
}

// minRetryWindow is the minimum time for which a call to a provider is retried, even if its
// deadline is sooner or in the past.
const minRetryWindow = time.Hour

// retriedProviderCall returns the context of a call to a provider, which Temporal retries until the deadline.
func retriedProviderCall(ctx workflow.Context, deadline time.Time, summary string) workflow.Context {
	return withOptions(ctx, untilAnswered, workflow.ActivityOptions{
		TaskQueue:              ProviderTaskQueue,
		StartToCloseTimeout:    30 * time.Second,
		ScheduleToCloseTimeout: max(minRetryWindow, deadline.Sub(workflow.Now(ctx))),
		Summary:                summary,
	})
}

// batchLimit bounds the time for which a batch delays the next customers while the provider answers
// none of its calls.
const batchLimit = time.Hour

// batchStep returns the context of a batch of customers. While the provider fails, Temporal retries the batch for up to
// batchLimit.
func batchStep(ctx workflow.Context, summary string) workflow.Context {
	return withOptions(ctx, untilAnswered, workflow.ActivityOptions{
		TaskQueue: ProviderTaskQueue, StartToCloseTimeout: 30 * time.Minute, ScheduleToCloseTimeout: batchLimit, Summary: summary,
	})
}

// providerCall returns the context of a call to a provider that Temporal does not retry. The caller
// either ignores a failure or repeats the step itself.
func providerCall(ctx workflow.Context, summary string) workflow.Context {
	return withOptions(ctx, notTriedAgain, workflow.ActivityOptions{TaskQueue: ProviderTaskQueue, StartToCloseTimeout: time.Minute, Summary: summary})
}

// providerListing returns the context of a step that only reads, with many calls to the provider. Temporal does not
// retry the step, because the next run reads the rest.
func providerListing(ctx workflow.Context, summary string) workflow.Context {
	return withOptions(ctx, notTriedAgain, workflow.ActivityOptions{TaskQueue: ProviderTaskQueue, StartToCloseTimeout: 30 * time.Minute, Summary: summary})
}

// heartbeat is the time without a heartbeat after which Temporal gives an activity to another
// worker.
const heartbeat = 10 * time.Second

// withOptions returns the context with the options of an activity, completed by the retry policy, the heartbeat timeout
// and, unless it is set, the main task queue.
func withOptions(ctx workflow.Context, again temporal.RetryPolicy, options workflow.ActivityOptions) workflow.Context {
	options.TaskQueue = cmp.Or(options.TaskQueue, TaskQueue)
	options.HeartbeatTimeout = heartbeat
	options.RetryPolicy = &again
	return workflow.WithActivityOptions(ctx, options)
}

// failureOf returns the code and the message of a non-retryable activity failure. For any other
// error, ok is false.
func failureOf(err error) (code, message string, ok bool) {
	var failure *temporal.ApplicationError
	if errors.As(err, &failure) && failure.NonRetryable() {
		return failure.Type(), failure.Message(), true
	}
	return "", "", false
}
