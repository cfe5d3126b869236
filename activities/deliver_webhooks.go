package activities

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/webhook"
)

const (
	// deliveryLanes is the maximum number of concurrent deliveries to an endpoint.
	deliveryLanes = 8
	// sendFor is the time after which SendMessages starts no more deliveries, so that the run can
	// report its progress.
	sendFor = 15 * time.Second
)

// SendMessagesInput names the endpoint. With AtOnce, waiting messages become due immediately.
type SendMessagesInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	EndpointID metering.EndpointID `json:"endpoint_id"`
	AtOnce     bool                `json:"at_once,omitempty"`
}

// SendMessagesResult counts the deliveries and describes the messages that remain.
type SendMessagesResult struct {
	Delivered int                      `json:"delivered"`
	Failed    int                      `json:"failed"`  // failed attempts
	Problem   string                   `json:"problem"` // of the last failed attempt
	Waiting   int                      `json:"waiting"` // messages that wait
	Next      *time.Time               `json:"next"`    // time of the next attempt; nil: no message is left
	Disabled  metering.DisabledBecause `json:"disabled,omitempty"`
}

// SendMessages delivers the endpoint's due messages, up to deliveryLanes of them concurrently.
func (a *Activities) SendMessages(ctx context.Context, in SendMessagesInput) (SendMessagesResult, error) {
	defer sendHeartbeats(ctx)()
	endpoint, err := a.store.Webhooks.Get(ctx, in.TenantID, in.EndpointID)
	if err != nil {
		return SendMessagesResult{}, err
	}
	if _, err := a.secretsOf(endpoint); err != nil {
		return SendMessagesResult{}, err // the webhook is not the cause, so no attempt is made
	}
	if in.AtOnce {
		if err := a.store.Deliveries.Hasten(ctx, in.TenantID, in.EndpointID, a.now()); err != nil && metering.CodeOf(err) != metering.CodeConflict {
			return SendMessagesResult{}, err
		}
	}
	var (
		lanes  sync.WaitGroup
		mu     sync.Mutex
		result SendMessagesResult
		failed error
	)
	until := a.now().Add(sendFor)
	for range deliveryLanes {
		lanes.Go(func() {
			for a.now().Before(until) {
				attempt, err := a.sendNext(ctx, in)
				mu.Lock()
				switch {
				case err != nil:
					failed = errors.Join(failed, err)
				case attempt == nil:
				case attempt.Problem == "":
					result.Delivered++
				default:
					result.Failed++
					result.Problem = attempt.Problem
				}
				mu.Unlock()
				if err != nil || attempt == nil {
					return
				}
			}
		})
	}
	lanes.Wait()
	if failed != nil {
		return SendMessagesResult{}, failed
	}
	waiting, err := a.store.Deliveries.Waiting(ctx, in.TenantID, in.EndpointID, a.now())
	result.Waiting, result.Next, result.Disabled = waiting.Messages, waiting.Next, waiting.Disabled
	return result, err
}

// sendNext delivers the message that has been due the longest, and returns the attempt. It returns
// nil if no message can be sent now. If only the delivery budget is used up, the message stays due
// and the run tries again.
func (a *Activities) sendNext(ctx context.Context, in SendMessagesInput) (*metering.Attempt, error) {
	claimed, err := a.store.Deliveries.Claim(ctx, in.TenantID, in.EndpointID, a.now(), webhook.Timeout+5*time.Second)
	if metering.CodeOf(err) == metering.CodeRateLimited {
		return nil, nil //nolint:nilnil // the message stays due
	}
	if err != nil || claimed == nil {
		return nil, err
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err() // the message is due again when its lease ends
	case <-time.After(claimed.Wait):
	}
	began := a.now()
	answer, err := a.sendMessage(ctx, *claimed)
	if ctx.Err() != nil {
		return nil, ctx.Err() // the result is unknown: the message is sent again when its lease ends
	}
	attempt := metering.Attempt{At: began, Took: a.now().Sub(began), Status: answer.Status, Problem: failureText(err)}
	err = a.store.Deliveries.Settle(ctx, *claimed, attempt, answer.RetryAfter, a.now())
	return &attempt, a.metrics.countDelivery(attempt.Problem, err)
}

// sendMessage delivers a claimed message once, and returns the webhook's answer.
func (a *Activities) sendMessage(ctx context.Context, c access.ClaimedDelivery) (webhook.Answer, error) {
	secrets, err := a.secretsOf(c.Endpoint)
	if err != nil {
		return webhook.Answer{}, err
	}
	body, err := c.Body()
	if err != nil {
		return webhook.Answer{}, err
	}
	return a.webhook.Deliver(ctx, c.Endpoint.URL, secrets, c.ID.String(), a.now(), body)
}

// secretsOf returns the secrets that currently sign the endpoint's messages.
func (a *Activities) secretsOf(e metering.Endpoint) (secrets []string, err error) {
	for _, sealed := range e.Signing(a.now()) {
		secret, err := a.keyring.Open(e.TenantID, seal.EndpointSecret, sealed)
		if err != nil {
			return nil, metering.Errorf(metering.CodeUnavailable, "the webhook's secret cannot be decrypted with this worker's ODOMETER_ENCRYPTION_KEYS; add the missing key or rotate the secret").Because(err)
		}
		secrets = append(secrets, string(secret))
	}
	return secrets, nil
}

// messagesKept is the retention of messages and their delivery attempts.
const messagesKept = 30 * 24 * time.Hour

// SweepMessages deletes old messages.
func (a *Activities) SweepMessages(ctx context.Context) error {
	defer sendHeartbeats(ctx)()
	return doInParts(sweptAtOnce, func(most int) (int, error) { return a.store.Deliveries.Sweep(ctx, a.now().Add(-messagesKept), most) })
}
