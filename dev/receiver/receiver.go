// Package receiver is a webhook endpoint for trying and testing deliveries. It verifies Standard Webhooks
// signatures, stores the deliveries, and can be told to fail:
//
//	GET    /received   return the deliveries, oldest first
//	DELETE /received   delete the deliveries
//	POST   /behave     {"status":503,"times":3,"delay_ms":0,"drop_answer":false}
//
// Any other path accepts deliveries.
package receiver

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

const (
	maxBody = 1 << 20
	maxKept = 10_000 // maximum number of stored deliveries; the oldest are deleted, because the receiver may run for weeks
)

// A Delivery is one received request, including those answered with an error.
type Delivery struct {
	At             time.Time         `json:"at"`
	Path           string            `json:"path"`
	Headers        map[string]string `json:"headers"`
	Body           string            `json:"body"`
	SignatureValid bool              `json:"signature_valid"`
}

// Behaviour defines the answers to the next deliveries.
type Behaviour struct {
	Status     int  `json:"status"`      // 0: the usual answer
	Times      int  `json:"times"`       // number of deliveries; 0 ends the behaviour
	DelayMS    int  `json:"delay_ms"`    // delay of the answer
	DropAnswer bool `json:"drop_answer"` // store the delivery, then close the connection without an answer
}

// receiver is the handler of the endpoint.
type receiver struct {
	verify func(body []byte, header http.Header) error

	mu        sync.Mutex
	received  []Delivery
	behaviour Behaviour
}

// Secret is a secret for receivers in tests.
const Secret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"

// New returns a receiver that verifies signatures and their times with secret ("whsec_" and base64). It panics if the
// secret is malformed.
func New(secret string) http.Handler { return newHandler(parseSecret(secret).Verify) }

// NewIgnoringTime is like New, except that it ignores the times of signatures. It is for senders with a simulated
// clock.
func NewIgnoringTime(secret string) http.Handler {
	return newHandler(parseSecret(secret).VerifyIgnoringTimestamp)
}

// parseSecret returns the verifier of signatures with the secret. It panics if the secret is malformed.
func parseSecret(secret string) *standardwebhooks.Webhook {
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		panic(fmt.Sprintf("webhook secret: %v", err))
	}
	return webhook
}

// newHandler returns a receiver that verifies deliveries with the function.
func newHandler(verify func(body []byte, header http.Header) error) http.Handler {
	r := &receiver{verify: verify}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /received", r.list)
	mux.HandleFunc("DELETE /received", r.deleteAll)
	mux.HandleFunc("POST /behave", r.behave)
	mux.HandleFunc("/", r.receive)
	return mux
}

// list handles GET /received.
func (r *receiver) list(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	received := append([]Delivery{}, r.received...)
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(received) // fails only if the client has disconnected
}

// Received returns the deliveries of the receiver at the URL, oldest first.
func Received(ctx context.Context, url string) (deliveries []Delivery, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/received", nil)
	if err != nil {
		return nil, err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	err = json.NewDecoder(answer.Body).Decode(&deliveries)
	return deliveries, err
}

// deleteAll handles DELETE /received.
func (r *receiver) deleteAll(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	r.received = nil
	r.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// behave handles POST /behave. Without times, the behaviour is for one delivery.
func (r *receiver) behave(w http.ResponseWriter, req *http.Request) {
	b := Behaviour{Times: 1}
	if err := json.NewDecoder(req.Body).Decode(&b); err != nil {
		http.Error(w, fmt.Sprintf("behaviour: %v", err), http.StatusBadRequest)
		return
	}
	if b.Status != 0 && (b.Status < 200 || b.Status > 599) {
		http.Error(w, "behaviour: status must be 200 to 599", http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	r.behaviour = b
	r.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// receive handles a delivery: it stores the delivery, and answers as the behaviour says.
func (r *receiver) receive(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		http.Error(w, fmt.Sprintf("body: %v", err), http.StatusBadRequest)
		return
	}
	delivery := Delivery{
		At: time.Now().UTC(), Path: req.URL.Path, Headers: map[string]string{}, Body: string(body),
		SignatureValid: r.verify(body, req.Header) == nil,
	}
	for name, values := range req.Header {
		delivery.Headers[name] = strings.Join(values, ", ")
	}

	b := r.recordDelivery(delivery)
	select {
	case <-time.After(time.Duration(b.DelayMS) * time.Millisecond):
	case <-req.Context().Done():
	}
	switch {
	case b.DropAnswer:
		panic(http.ErrAbortHandler) // closes the connection without an answer
	case b.Status != 0:
		w.WriteHeader(b.Status)
	case !delivery.SignatureValid:
		http.Error(w, "the signature is not valid", http.StatusUnauthorized)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// recordDelivery stores the delivery and returns the behaviour for its answer.
func (r *receiver) recordDelivery(d Delivery) Behaviour {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.received = append(r.received, d)
	if len(r.received) > maxKept {
		r.received = r.received[len(r.received)-maxKept:]
	}
	if r.behaviour.Times <= 0 {
		return Behaviour{}
	}
	r.behaviour.Times--
	return r.behaviour
}
