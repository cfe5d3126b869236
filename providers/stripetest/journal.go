package stripetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"
)

// step is a change of the fake. A step without Seed, Advance and Call records only that time has passed.
// Serial is the last number used in an id before the step, so that a replay creates the same ids.
type step struct {
	At      time.Time     `json:"at"`
	Serial  int           `json:"serial"`
	Seed    *Seed         `json:"seed,omitempty"`
	Advance time.Duration `json:"advance,omitempty"`
	Call    *journaled    `json:"call,omitempty"`
}

// journaled is a call, and the behaviour that applied to it.
type journaled struct {
	Method    string      `json:"method"`
	URL       string      `json:"url"`
	Header    http.Header `json:"header"`
	Form      string      `json:"form"`
	Behaviour Behaviour   `json:"behaviour"`
}

// Resume replays the steps in the journal, so that the fake's state survives a restart like Stripe's. Later changes are
// appended to the journal, except calls that cannot change the state. A new journal is empty.
func (f *Fake) Resume(journal io.ReadWriter) error {
	now := f.options.Now
	defer func() { f.options.Now = now }()
	steps, serial := json.NewDecoder(journal), 0
	for {
		var s step
		switch err := steps.Decode(&s); {
		case errors.Is(err, io.EOF):
			f.serial, f.journal = serial, json.NewEncoder(journal)
			return nil
		case err != nil:
			return fmt.Errorf("read journal: %w", err)
		}
		f.options.Now = func() time.Time { return s.At }
		if err := f.replayStep(s); err != nil {
			return fmt.Errorf("repeat %s: %w", s.At.Format(time.RFC3339), err)
		}
		serial = max(serial, f.serial)
	}
}

// replayStep repeats the change of a step.
func (f *Fake) replayStep(s step) error {
	f.serial = s.Serial
	switch {
	case s.Seed != nil:
		_ = f.Seed(s.Seed) // a seed that failed fails again
	case s.Call != nil:
		f.behaviour = s.Call.Behaviour
		return s.Call.replay(f)
	default:
		f.Advance(s.Advance)
	}
	return nil
}

// replay makes the journaled call with a canceled context, so that delays end immediately.
func (j *journaled) replay(f *Fake) error {
	gone, leave := context.WithCancel(context.Background())
	leave()
	request, err := http.NewRequestWithContext(gone, j.Method, j.URL, strings.NewReader(j.Form))
	if err != nil {
		return err
	}
	request.Header = j.Header
	defer func() {
		if cut := recover(); cut != nil && cut != http.ErrAbortHandler { //nolint:errorlint // what serve panics with
			panic(cut)
		}
	}()
	f.ServeHTTP(httptest.NewRecorder(), request)
	return nil
}

// note appends a step to the journal. If the write fails, note drops the journal, because later steps depend on this
// one.
func (f *Fake) note(s step) {
	if f.journal == nil {
		return
	}
	s.At = f.options.Now()
	if err := f.journal.Encode(s); err != nil {
		f.journal = nil
	}
}

// noteCall appends a call to the journal, unless the call cannot have changed the state.
func (f *Fake) noteCall(r *http.Request, form string, b Behaviour, a answer, serial int) {
	if r.Method == http.MethodGet || a.unsaved || a.replayed {
		return
	}
	b.Times, b.Path = 1, ""
	f.note(step{Serial: serial, Call: &journaled{r.Method, r.URL.RequestURI(), r.Header, form, b}})
}
