package stripetest

import (
	"net/http"
	"time"
)

// keyRetention is the minimum time for which Stripe keeps an idempotency key or identifier; Stripe may keep it
// longer: https://docs.stripe.com/api/idempotent_requests and
// https://docs.stripe.com/api/billing/meter-event/create
const keyRetention = 24 * time.Hour

const maxKey = 255 // characters

// saved is the response to a call with an idempotency key. answer is nil while the call runs.
type saved struct {
	at      time.Time
	request string
	answer  *answer
}

// runOnce runs do for the first call with an idempotency key, and repeats its response to later calls.
func (c *call) runOnce(do func() answer) answer {
	key := c.request.Header.Get("Idempotency-Key")
	if c.request.Method != http.MethodPost || key == "" {
		return do()
	}
	if len(key) > maxKey {
		return invalid("", "The idempotency key must be at most %d characters.", maxKey).notSaved()
	}
	this := saved{c.fake.now(), c.request.URL.Path + " " + c.form.Encode(), nil}
	if before, ok := c.saved[key]; ok && this.at.Sub(before.at) < keyRetention {
		return before.repeat(this.request)
	}
	c.saved[key] = &this
	a := do()
	if a.unsaved {
		delete(c.saved, key)
		return a
	}
	this.answer = &a
	return a
}

// repeat returns the saved response. It returns an error if the request differs from the first one with the key, or if
// the first call still runs.
func (s *saved) repeat(request string) answer {
	if s.request != request {
		return answer{status: http.StatusBadRequest, body: object{"error": object{
			"type":    "idempotency_error",
			"message": "Keys for idempotent requests can only be used with the same parameters they were first used with.",
		}}}
	}
	if s.answer == nil {
		return Behaviour{Status: http.StatusConflict}.answer()
	}
	a := *s.answer
	a.replayed = true
	return a
}
