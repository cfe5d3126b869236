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
	// keepsEvents is https://docs.stripe.com/api/events
	keepsEvents = 30 * 24 * time.Hour
	// eventsAtOnce bounds a page in bytes: an event of an invoice has up to ten of its lines.
	eventsAtOnce = 50
)

// KeepsEvents is how long Stripe lists an event.
func (Provider) KeepsEvents() time.Duration { return keepsEvents }

// ListEvents lists what Stripe sends, or would send, as events. Where it has
// forgotten what the page before ended with, it has all that is older.
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
			continue // one that is sent is refused
		}
		if event, ours := read.about(c); ours {
			page.Events = append(page.Events, event)
		}
	}
	return page, nil
}

// refusedParameter says whether Stripe refused a call because of the parameter.
func refusedParameter(err error, name string) bool {
	var said *answered
	return errors.As(err, &said) && said.param == name
}
