package stripe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/odometer-metering/odometer/providers"
)

const (
	// keepsEvents is how long Stripe lists an event: https://docs.stripe.com/api/events
	keepsEvents = 30 * 24 * time.Hour
	// eventsAtOnce limits the size of a page: an invoice event contains up to ten lines of its invoice.
	eventsAtOnce = 50
)

// KeepsEvents returns how long Stripe lists an event.
func (Provider) KeepsEvents() time.Duration { return keepsEvents }

// ListEvents returns a page of events of the types in Signals, newest first. If Stripe no longer has the last event of
// the previous page, the page is empty, because Stripe has no older events either.
func (p Provider) ListEvents(ctx context.Context, c providers.Credentials, q providers.EventQuestion) (page providers.EventPage, err error) {
	of := query("limit", strconv.Itoa(eventsAtOnce), "created[gte]", strconv.FormatInt(q.Since.Unix(), 10))
	for n, kind := range p.Signals().Types {
		of.Add(fmt.Sprintf("types[%d]", n), kind)
	}
	if q.After != "" {
		of.Add("starting_after", q.After)
	}
	var listed struct {
		Data    []json.RawMessage `json:"data"`
		HasMore bool              `json:"has_more"`
	}
	err = p.client.read(ctx, c.Secret, "/v1/events", of, &listed)
	if q.After != "" && refusedParameter(err, "starting_after") {
		return page, nil
	}
	if err != nil {
		return page, advised(fmt.Errorf("list events: %w", err))
	}
	page.More = listed.HasMore && len(listed.Data) > 0
	for _, text := range listed.Data {
		var made struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(text, &made) == nil {
			page.Last = made.ID
		}
		read, err := parseEvent(text)
		if err != nil {
			continue // the event cannot be decoded; Verify rejects it too if Stripe delivers it
		}
		if event, ours := read.providerEvent(c); ours {
			page.Events = append(page.Events, event)
		}
	}
	return page, nil
}

// refusedParameter reports whether Stripe refused a call because of the parameter.
func refusedParameter(err error, name string) bool {
	var said *answered
	return errors.As(err, &said) && said.param == name
}
