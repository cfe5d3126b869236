package stripetest

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Behaviour changes the responses to the next calls.
type Behaviour struct {
	Status     int    `json:"status"`      // error status; 0: no error
	Times      int    `json:"times"`       // number of calls; 0: none
	DelayMS    int    `json:"delay_ms"`    // delay before the call is processed
	DropAnswer bool   `json:"drop_answer"` // process the call, then close the connection without a response
	Mode       Mode   `json:"mode"`
	Done       bool   `json:"done"`        // process the call, though the response is an error or missing
	RetryAfter int    `json:"retry_after"` // in seconds
	Path       string `json:"path"`        // only calls with this path prefix
	Method     string `json:"method"`      // only calls with this method; "": any
	LagSeconds int    `json:"lag_seconds"` // delay of stale summaries; 0: ten minutes

	Until <-chan struct{} `json:"-"` // process the call only after a test has closed the channel
}

// Mode is a failure that a status alone does not describe.
type Mode string

const (
	Saved       Mode = "saved"        // the error is repeated for the same idempotency key
	LockTimeout Mode = "lock_timeout" // 429, as for two concurrent calls on one object
	Hang        Mode = "hang"         // no response until the caller gives up
	RejectLater Mode = "reject_later" // a meter event is acknowledged and not counted; a later report lists it
	Drop        Mode = "drop"         // like RejectLater, without a report
	Stale       Mode = "stale"        // event summaries lack the events received in the last LagSeconds
)

// Behave sets the behaviour for the next calls.
func (f *Fake) Behave(b Behaviour) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.behaviour = b
}

// serveBehave handles POST /behave.
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

// takeBehaviour returns the behaviour for a call and decrements the number of calls to which it still applies. It
// returns the zero Behaviour if the set behaviour does not apply to the call.
func (f *Fake) takeBehaviour(r *http.Request) Behaviour {
	b := &f.behaviour
	if b.Times <= 0 || !strings.HasPrefix(r.URL.Path, b.Path) || b.Method != "" && b.Method != r.Method {
		return Behaviour{}
	}
	b.Times--
	return *b
}

// failing reports whether the call gets an error or hangs, even if it was processed.
func (b Behaviour) failing() bool { return b.Status != 0 || b.Mode == LockTimeout || b.Mode == Hang }

// failsEarly reports whether the call fails before it is processed.
func (b Behaviour) failsEarly() bool {
	return b.failing() && !b.Done && b.Mode != Saved && b.DelayMS == 0 && b.Until == nil
}

// answer returns the response of a failing call.
func (b Behaviour) answer() answer {
	a := b.problem()
	if b.RetryAfter > 0 {
		a.header = http.Header{"Retry-After": {strconv.Itoa(b.RetryAfter)}}
	}
	a.unsaved = b.Mode != Saved && !b.Done
	return a
}

// problem returns the error with the behaviour's status, as Stripe words it.
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

// lockTimeout returns the error for an object that another request is changing.
func lockTimeout() answer {
	return refused(http.StatusTooManyRequests, "lock_timeout", "",
		"This object cannot be accessed right now because another API request or Stripe process is currently accessing it.").notSaved()
}
