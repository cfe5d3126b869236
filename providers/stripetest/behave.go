package stripetest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Behaviour is how the next calls of the API are answered.
type Behaviour struct {
	Status     int    `json:"status"`      // of the error; 0 is none
	Times      int    `json:"times"`       // how many calls; 0 ends it
	DelayMS    int    `json:"delay_ms"`    // wait before working
	DropAnswer bool   `json:"drop_answer"` // work, then cut the connection
	Mode       Mode   `json:"mode"`
	Done       bool   `json:"done"`        // work, though the answer is an error or none
	RetryAfter int    `json:"retry_after"` // seconds
	Path       string `json:"path"`        // only calls whose path begins with it
	Method     string `json:"method"`      // only calls with it; "" is any
	LagSeconds int    `json:"lag_seconds"` // how far stale summaries are behind; 0 is ten minutes

	Until <-chan struct{} `json:"-"` // wait before working until a test closes it
}

// Mode is a way to fail that no status tells.
type Mode string

const (
	Saved       Mode = "saved"        // the error comes again for the same idempotency key
	LockTimeout Mode = "lock_timeout" // 429, as when two calls meet on one object
	Hang        Mode = "hang"         // no answer until the caller gives up
	RejectLater Mode = "reject_later" // a meter event is answered with success and not counted, as a report says later
	Drop        Mode = "drop"         // the same, and nothing says so
	Stale       Mode = "stale"        // event summaries lack the events of the last LagSeconds
)

// Behave sets how the next calls are answered.
func (f *Fake) Behave(b Behaviour) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behaviour = b
}

func (f *Fake) serveBehave(w http.ResponseWriter, r *http.Request) {
	b := Behaviour{Times: 1}
	if !decode(w, r, &b) {
		return
	}
	if b.Status != 0 && (b.Status < 400 || b.Status > 599) {
		http.Error(w, "behaviour: status must be 400 to 599", http.StatusBadRequest)
		return
	}
	switch b.Mode {
	case "", Saved, LockTimeout, Hang, RejectLater, Drop, Stale:
		f.Behave(b)
		w.WriteHeader(http.StatusNoContent)
	default:
		http.Error(w, fmt.Sprintf("behaviour: mode must be one of %v", []Mode{Saved, LockTimeout, Hang, RejectLater, Drop, Stale}), http.StatusBadRequest)
	}
}

// take uses up one of the calls that the behaviour is for.
func (f *Fake) take(r *http.Request) Behaviour {
	b := &f.behaviour
	if b.Times <= 0 || !strings.HasPrefix(r.URL.Path, b.Path) || b.Method != "" && b.Method != r.Method {
		return Behaviour{}
	}
	b.Times--
	return *b
}

// failing says whether the answer is an error, or none, whatever the call does.
func (b Behaviour) failing() bool { return b.Status != 0 || b.Mode == LockTimeout || b.Mode == Hang }

// early says whether it fails before the endpoint begins to work.
func (b Behaviour) early() bool {
	return b.failing() && !b.Done && b.Mode != Saved && b.DelayMS == 0 && b.Until == nil
}

func (b Behaviour) answer() answer {
	a := b.problem()
	if b.RetryAfter > 0 {
		a.header = http.Header{"Retry-After": {strconv.Itoa(b.RetryAfter)}}
	}
	a.unsaved = b.Mode != Saved && !b.Done
	return a
}

func (b Behaviour) problem() answer {
	switch {
	case b.Mode == LockTimeout:
		return lockTimeout()
	case b.Status == http.StatusUnauthorized:
		return refused(b.Status, "", "", "Invalid API Key provided: ****")
	case b.Status == http.StatusForbidden:
		return refused(b.Status, "", "", "The provided key does not have the required permissions for this endpoint.")
	case b.Status == http.StatusTooManyRequests:
		return refused(b.Status, "rate_limit", "", "Request rate limit exceeded.")
	case b.Status == http.StatusConflict:
		return refused(b.Status, "idempotency_key_in_use", "", "There is currently another in-progress request using this Idempotent Key.")
	case b.Status == 0:
		return answer{status: http.StatusOK}
	default:
		return refused(b.Status, "", "", "As asked by /behave.")
	}
}

func lockTimeout() answer {
	return refused(http.StatusTooManyRequests, "lock_timeout", "",
		"This object cannot be accessed right now because another API request or Stripe process is currently accessing it.").notSaved()
}
