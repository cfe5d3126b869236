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

// Webhook is one delivery to make.
type Webhook struct {
	Type       string `json:"type"`        // invoice.…, customer.subscription.…
	Object     string `json:"object"`      // the id of the invoice or subscription
	URL        string `json:"url"`         // "" is the account's
	Secret     string `json:"secret"`      // "" is the account's
	APIVersion string `json:"api_version"` // in which the event is written; "" is 2023-10-16
}

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

// Event returns an event about an object as it is now, and the header that
// signs it by the fake's clock. It fills in what the account knows.
func (f *Fake) Event(in *Webhook) (payload []byte, header string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.settle()
	otherwise(&in.APIVersion, "2023-10-16")
	a, about := f.about(*in)
	if a == nil {
		return nil, "", errors.New("make event: no such object")
	}
	otherwise(&in.URL, a.WebhookURL)
	otherwise(&in.Secret, a.WebhookSecret)
	now := f.now()
	payload, err = json.Marshal(object{
		"object": "event", "id": f.id("evt"), "type": in.Type, "api_version": in.APIVersion, "created": now.Unix(),
		"livemode": a.livemode(), "pending_webhooks": 1, "request": object{"id": nil, "idempotency_key": nil},
		"data": object{"object": about},
	})
	if err != nil {
		return nil, "", fmt.Errorf("encode event: %w", err)
	}
	return payload, Sign(payload, in.Secret, now), nil
}

func (f *Fake) about(in Webhook) (*account, object) {
	for _, a := range f.accounts {
		if found := a.invoice(in.Object); found != nil && strings.HasPrefix(in.Type, "invoice.") {
			return a, a.invoiceObject(found, in.APIVersion)
		}
		if found := a.subscription(in.Object); found != nil && strings.HasPrefix(in.Type, "customer.subscription.") {
			return a, a.subscriptionObject(found, in.APIVersion)
		}
	}
	return nil, nil
}

// Sign returns the Stripe-Signature header: https://docs.stripe.com/webhooks#verify-manually
func Sign(payload []byte, secret string, at time.Time) string {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write(fmt.Appendf(nil, "%d.%s", at.Unix(), payload))
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(mac.Sum(nil)))
}
