package activities

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/webhook"
)

const (
	// deliveryLanes are how many messages are on their way to an endpoint at once.
	deliveryLanes = 8
	// sendFor is how long messages are taken to be sent, so that the run reports
	// its progress now and then.
	sendFor = 15 * time.Second
)

// SendMessagesInput names the endpoint. AtOnce does not wait for what waits.
type SendMessagesInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	EndpointID metering.EndpointID `json:"endpoint_id"`
	AtOnce     bool                `json:"at_once,omitempty"`
}

// SendMessagesResult is what was done, and what is left.
type SendMessagesResult struct {
	Delivered int                      `json:"delivered"`
	Failed    int                      `json:"failed"`  // attempts in vain
	Problem   string                   `json:"problem"` // of the last one of those
	Waiting   int                      `json:"waiting"` // messages
	Next      *time.Time               `json:"next"`    // when to go on; nil: nothing is left
	Disabled  metering.DisabledBecause `json:"disabled,omitempty"`
}

// SendMessages sends the endpoint what is due, several messages at once.
func (a *Activities) SendMessages(ctx context.Context, in SendMessagesInput) (SendMessagesResult, error) {
	defer alive(ctx)()
	endpoint, err := a.store.Webhooks.Get(ctx, in.TenantID, in.EndpointID)
	if err != nil {
		return SendMessagesResult{}, err
	}
	if _, err := a.secretsOf(endpoint); err != nil {
		return SendMessagesResult{}, err // no fault of the webhook's: nothing is tried
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

// sendNext makes one attempt at the message that is due, or none: nil. Without budget
// for it, the run tries again in a second.
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
		return nil, ctx.Err() // it is due again when the lease ends
	case <-time.After(claimed.Wait):
	}
	began := a.now()
	answer, err := a.sendMessage(ctx, *claimed)
	if ctx.Err() != nil {
		return nil, ctx.Err() // nobody knows what came of it: it is sent again when the lease ends
	}
	attempt := metering.Attempt{At: began, Took: a.now().Sub(began), Status: answer.Status, Problem: failureText(err)}
	err = a.store.Deliveries.Settle(ctx, *claimed, attempt, answer.RetryAfter, a.now())
	return &attempt, a.metrics.delivered(attempt.Problem, err)
}

func (a *Activities) sendMessage(ctx context.Context, c db.ClaimedDelivery) (webhook.Answer, error) {
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

// secretsOf are what the endpoint's messages are signed with now.
func (a *Activities) secretsOf(e metering.Endpoint) (secrets []string, err error) {
	for _, sealed := range e.Signing(a.now()) {
		secret, err := a.keyring.Open(e.TenantID, db.EndpointSecret, sealed)
		if err != nil {
			return nil, metering.Errorf(metering.CodeUnavailable, "the webhook's secret cannot be decrypted with this worker's ODOMETER_ENCRYPTION_KEYS; add the missing key or rotate the secret").Because(err)
		}
		secrets = append(secrets, string(secret))
	}
	return secrets, nil
}

// messagesKept is how long messages, and what came of them, can be looked at.
const messagesKept = 30 * 24 * time.Hour

// SweepMessages forgets old messages.
func (a *Activities) SweepMessages(ctx context.Context) error {
	defer alive(ctx)()
	return inParts(sweptAtOnce, func(most int) (int, error) { return a.store.Deliveries.Sweep(ctx, a.now().Add(-messagesKept), most) })
}
