package stripetest

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// Webhook selects an event to deliver.
type Webhook struct {
	Type       string `json:"type"`        // invoice.…, customer.subscription.…
	Object     string `json:"object"`      // id of the invoice or subscription
	URL        string `json:"url"`         // "": the account's
	Secret     string `json:"secret"`      // "": the account's
	APIVersion string `json:"api_version"` // version of an event about Object; "": 2023-10-16
	Event      string `json:"event"`       // instead of Type and Object: id of an event in GET /v1/events or /v2/core/events
	Livemode   *bool  `json:"livemode"`    // mode of the object, if both modes have an object with this id
}

// serveWebhook handles POST /_webhook, which delivers an event to the account's webhook.
func (f *Fake) serveWebhook(w http.ResponseWriter, r *http.Request) {
	var in Webhook
	if !decode(w, r, &in) {
		return
	}
	status, err := f.Deliver(r.Context(), in)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	encode(w, http.StatusOK, map[string]int{"status": status})
}

// Deliver sends a signed event and returns the answer's status.
func (f *Fake) Deliver(ctx context.Context, in Webhook) (int, error) {
	payload, header, err := f.Event(&in)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, in.URL, bytes.NewReader(payload))
	if err != nil {
		return 0, fmt.Errorf("make request: %w", err)
	}
	request.Header.Set("Content-Type", "application/json; charset=utf-8")
	request.Header.Set("Stripe-Signature", header)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, fmt.Errorf("deliver event: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode, nil
}

// Event returns an event and its signature header. The signature has the fake's time. Event sets a missing URL
// and Secret of its argument to those of the account, and a missing APIVersion to 2023-10-16.
func (f *Fake) Event(in *Webhook) (payload []byte, header string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processDue()
	setDefault(&in.APIVersion, "2023-10-16")
	a, event := f.selectEvent(*in)
	if a == nil {
		return nil, "", errors.New("make event: no such object")
	}
	setDefault(&in.URL, a.WebhookURL)
	setDefault(&in.Secret, a.WebhookSecret)
	payload, err = json.Marshal(event)
	if err != nil {
		return nil, "", fmt.Errorf("encode event: %w", err)
	}
	return payload, Sign(payload, in.Secret, f.now()), nil
}

// selectEvent returns the event that in selects and its account, or nil. For an object, it returns a new event.
func (f *Fake) selectEvent(in Webhook) (*account, object) {
	for _, a := range f.accounts {
		if in.Livemode != nil && a.livemode() != *in.Livemode {
			continue
		}
		if h := a.happening(in.Event); h != nil && h.thin {
			return a, a.thinObject(h)
		} else if h != nil {
			return a, a.eventObject(h)
		}
		if found := a.invoice(in.Object); found != nil && strings.HasPrefix(in.Type, "invoice.") {
			return a, f.freshEvent(a, in, a.invoiceObject(found, view{version: in.APIVersion}))
		}
		if found := a.subscription(in.Object); found != nil && strings.HasPrefix(in.Type, "customer.subscription.") {
			return a, f.freshEvent(a, in, a.subscriptionObject(found, view{version: in.APIVersion}))
		}
	}
	return nil, nil
}

// freshEvent returns a new event about the current state of an object, although the object has not changed. The API
// does not list this event.
func (f *Fake) freshEvent(a *account, in Webhook, about object) object {
	event := a.eventObject(&happening{id: f.id("evt"), kind: in.Type, at: f.now(), object: about})
	event["api_version"] = in.APIVersion
	return event
}

// Sign returns the Stripe-Signature header: https://docs.stripe.com/webhooks#verify-manually
func Sign(payload []byte, secret string, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(fmt.Appendf(nil, "%d.%s", at.Unix(), payload))
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}
