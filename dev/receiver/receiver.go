// Package receiver is the far end of a webhook, for trying and testing
// deliveries: it verifies Standard Webhooks signatures, keeps what it got, and
// misbehaves when asked to.
//
//	GET    /received   what came, oldest first
//	DELETE /received   forget it
//	POST   /behave     {"status":503,"times":3,"delay_ms":0,"drop_answer":false}
//
// Any other path takes deliveries.
package receiver

import (
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
	maxKept = 10_000 // then the oldest go: it may run for weeks
)

// A Delivery is one request as it came, also when it was answered with an error.
type Delivery struct {
	At             time.Time         `json:"at"`
	Path           string            `json:"path"`
	Headers        map[string]string `json:"headers"`
	Body           string            `json:"body"`
	SignatureValid bool              `json:"signature_valid"`
}

// Behaviour is how the next deliveries are answered.
type Behaviour struct {
	Status     int  `json:"status"`      // 0: as if nothing had been asked
	Times      int  `json:"times"`       // how many deliveries; 0 ends it
	DelayMS    int  `json:"delay_ms"`    // wait before answering
	DropAnswer bool `json:"drop_answer"` // keep the delivery, then cut the connection
}

type receiver struct {
	webhook *standardwebhooks.Webhook

	mu        sync.Mutex
	received  []Delivery
	behaviour Behaviour
}

// New returns a receiver that verifies with secret ("whsec_" and base64). It
// panics on a malformed one, which no request could put right.
func New(secret string) http.Handler {
	webhook, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		panic(fmt.Sprintf("webhook secret: %v", err))
	}
	r := &receiver{webhook: webhook}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /received", r.list)
	mux.HandleFunc("DELETE /received", r.forget)
	mux.HandleFunc("POST /behave", r.behave)
	mux.HandleFunc("/", r.receive)
	return mux
}

func (r *receiver) list(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	received := append([]Delivery{}, r.received...)
	r.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(received) // fails only when the reader has gone
}

func (r *receiver) forget(w http.ResponseWriter, _ *http.Request) {
	r.mu.Lock()
	r.received = nil
	r.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

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

func (r *receiver) receive(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		http.Error(w, fmt.Sprintf("body: %v", err), http.StatusBadRequest)
		return
	}
	delivery := Delivery{
		At: time.Now().UTC(), Path: req.URL.Path, Headers: map[string]string{}, Body: string(body),
		SignatureValid: r.webhook.Verify(body, req.Header) == nil,
	}
	for name, values := range req.Header {
		delivery.Headers[name] = strings.Join(values, ", ")
	}

	b := r.keep(delivery)
	select {
	case <-time.After(time.Duration(b.DelayMS) * time.Millisecond):
	case <-req.Context().Done():
	}
	switch {
	case b.DropAnswer:
		panic(http.ErrAbortHandler) // net/http's way to cut a connection without an answer
	case b.Status != 0:
		w.WriteHeader(b.Status)
	case !delivery.SignatureValid:
		http.Error(w, "the signature is not valid", http.StatusUnauthorized)
	default:
		w.WriteHeader(http.StatusNoContent)
	}
}

// keep records the delivery and says how to answer it.
func (r *receiver) keep(d Delivery) Behaviour {
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
