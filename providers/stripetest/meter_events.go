package stripetest

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Limits of a meter event: https://docs.stripe.com/api/billing/meter-event/create. Its time can be at most oldest in
// the past and at most newest in the future.
const (
	oldest        = 35 * 24 * time.Hour
	newest        = 5 * time.Minute
	maxIdentifier = 100 // characters
)

// lag is the default time by which summaries are behind in the mode Stale.
const lag = 10 * time.Minute

const maxDigits = 15

// event is a meter event. Events are stored in the order of their arrival.
type event struct {
	meter    *Meter
	customer string
	value    metering.Decimal
	at       time.Time
	received time.Time
}

// Rejection is a meter event that was acknowledged and not counted:
// https://docs.stripe.com/billing/subscriptions/usage-based/recording-usage-api#handle-errors
type Rejection struct {
	Identifier string `json:"identifier"`
	Meter      string `json:"meter"`
	Customer   string `json:"customer"`
}

// meterOf returns the active meter with the event name, or nil.
func (a *account) meterOf(eventName string) *Meter {
	for _, m := range a.meters {
		if m.EventName == eventName && m.Status == "active" {
			return m
		}
	}
	return nil
}

// meterAndCustomer returns the key of the lock that allows one meter event at a time for a meter and customer.
// It returns "" for calls without such a lock.
func (c *call) meterAndCustomer() string {
	m := c.meterOf(c.form.Get("event_name"))
	if m == nil || c.request.URL.Path != "/v1/billing/meter_events" {
		return ""
	}
	return m.ID + " " + c.form.Get("payload["+m.CustomerKey+"]")
}

// createMeterEvent handles POST /v1/billing/meter_events.
func (c *call) createMeterEvent() answer {
	e, problem := c.readEvent()
	if problem != nil {
		return *problem
	}
	identifier := c.form.Get("identifier")
	c.fake.setMissingID(&identifier, "idmp")
	if before, known := c.identifiers[identifier]; known && e.received.Sub(before) < keyRetention {
		again := invalid("", "An event already exists with identifier %s.", identifier)
		again.header = http.Header{"Stripe-Should-Retry": {"false"}}
		return again
	}
	c.identifiers[identifier] = e.received
	switch c.mode {
	case RejectLater, Drop:
		c.reject(identifier, e)
	default:
		c.events = append(c.events, e)
		c.fake.watchThresholds(c.account, e.customer)
	}
	return okAnswer(object{
		"object": "billing.meter_event", "event_name": e.meter.EventName, "identifier": identifier, "livemode": c.livemode(),
		"created": e.received.Unix(), "timestamp": e.at.Unix(), "payload": c.pairs("payload"),
	})
}

// readEvent returns the meter event that the call reports, or an error.
func (c *call) readEvent() (event, *answer) {
	problem := func(param, format string, args ...any) (event, *answer) {
		a := invalid(param, format, args...)
		return event{}, &a
	}
	m := c.meterOf(c.form.Get("event_name"))
	if m == nil {
		return problem("event_name", "No active meter found for event name %s.", c.form.Get("event_name"))
	}
	customer := c.form.Get("payload[" + m.CustomerKey + "]")
	if !c.hasCustomer(customer) {
		return problem("payload", "No such customer: '%s'", customer)
	}
	if len(c.form.Get("identifier")) > maxIdentifier {
		return problem("identifier", "Invalid string: must be at most %d characters", maxIdentifier)
	}
	value, err := readValue(c.form.Get("payload["+m.ValueKey+"]"), c.Decimals)
	if err != nil {
		return problem("payload", "The value in the event payload %v.", err)
	}
	at, err := readTime(c.form.Get("timestamp"), c.fake.customerTime(c.account, customer))
	if err == nil { // with a test clock, too: Stripe does not document which clock applies
		_, err = readTime(strconv.FormatInt(at.Unix(), 10), c.fake.now())
	}
	if err != nil {
		return problem("timestamp", "The event timestamp %v.", err)
	}
	return event{m, customer, value, at, c.fake.now()}, nil
}

// readValue parses the value of an event. Only an account with decimals accepts decimals.
func readValue(text string, decimals bool) (metering.Decimal, error) {
	value, err := metering.ParseDecimal(text)
	switch {
	case decimals && err != nil:
		return metering.Decimal{}, errors.New("must be a number with at most 12 decimals")
	case err != nil || !decimals && !value.Equal(value.Round(0)):
		return metering.Decimal{}, errors.New("must be a whole number")
	case digits(value) > maxDigits:
		return metering.Decimal{}, fmt.Errorf("can have at most %d digits", maxDigits)
	}
	return value, nil
}

// digits returns the number of digits in plain notation, without leading zeros.
func digits(value metering.Decimal) int {
	return len(strings.TrimLeft(strings.Replace(value.String(), ".", "", 1), "-0"))
}

// readTime parses the time of an event. Without a text, it is now.
func readTime(text string, now time.Time) (time.Time, error) {
	if text == "" {
		return now.Truncate(time.Second), nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	at := time.Unix(seconds, 0).UTC()
	switch {
	case err != nil:
		return time.Time{}, errors.New("must be an integer")
	case at.Before(now.Add(-oldest)):
		return time.Time{}, errors.New("cannot be more than 35 days in past")
	case at.After(now.Add(newest)):
		return time.Time{}, errors.New("cannot be more than 5 minutes in future")
	}
	return at, nil
}

// metered returns a customer's usage on a meter from start (inclusive) to end (exclusive).
func (a *account) metered(m *Meter, customer string, start, end time.Time) metering.Decimal {
	if m.EventTimeWindow != "" && m.Formula != "last" {
		return a.windowed(m, customer, start, end)
	}
	var total metering.Decimal
	var latest time.Time
	for _, e := range a.events {
		if e.meter != m || e.customer != customer || e.at.Before(start) || !e.at.Before(end) {
			continue
		}
		switch m.Formula {
		case "count":
			total = total.Add(metering.Whole(1))
		case "last":
			if !e.at.Before(latest) {
				total, latest = e.value, e.at
			}
		default:
			total = total.Add(e.value)
		}
	}
	return total
}

// window is an hour or day of UTC with its last received value.
type window struct {
	start time.Time
	value metering.Decimal
}

// windows returns the windows in the order of their first event:
// https://docs.stripe.com/billing/subscriptions/usage-based/recording-usage#event-ingestion
func (a *account) windows(m *Meter, customer string) []window {
	var all []window
	at := map[time.Time]int{}
	for _, e := range a.events {
		if e.meter != m || e.customer != customer {
			continue
		}
		start := e.at.Truncate(m.window())
		i, known := at[start]
		if !known {
			i = len(all)
			at[start] = i
			all = append(all, window{start: start})
		}
		all[i].value = e.value
	}
	return all
}

// window returns the length of the windows in which the meter counts.
func (m *Meter) window() time.Duration {
	if m.EventTimeWindow == "day" {
		return 24 * time.Hour
	}
	return time.Hour
}

// windowed returns the sum of the windows that end in the period. A window that spans the period's end is
// billed in the next period
// (https://insiders.stripe.dev/t/usage-based-billing-daily-aggregate-question/1252).
func (a *account) windowed(m *Meter, customer string, start, end time.Time) metering.Decimal {
	var total metering.Decimal
	for _, w := range a.windows(m, customer) {
		if until := w.start.Add(m.window()); until.After(start) && !until.After(end) {
			total = total.Add(w.value)
		}
	}
	return total
}

// listEventSummaries handles GET /v1/billing/meters/{id}/event_summaries.
func (c *call) listEventSummaries() answer {
	id := c.request.PathValue("id")
	m := c.meter(id)
	if m == nil {
		return missing("billing meter", id)
	}
	customer := c.form.Get("customer")
	if !c.hasCustomer(customer) {
		return refused(http.StatusBadRequest, "resource_missing", "customer", "No such customer: '%s'", customer)
	}
	start, err1 := strconv.ParseInt(c.form.Get("start_time"), 10, 64)
	end, err2 := strconv.ParseInt(c.form.Get("end_time"), 10, 64)
	if err1 != nil || err2 != nil || start%60 != 0 || end%60 != 0 || end <= start {
		return invalid("start_time", "start_time and end_time must be aligned with minute boundaries.")
	}
	seen := c.summarizedAccount()
	if !slices.ContainsFunc(seen.events, func(e event) bool { return e.meter == m && e.customer == customer }) {
		return c.page(nil)
	}
	return c.page([]object{{
		"object": "billing.meter_event_summary", "id": "mtrusg_" + id, "livemode": c.livemode(), "meter": id,
		"start_time": start, "end_time": end,
		"aggregated_value": seen.metered(m, customer, time.Unix(start, 0), time.Unix(end, 0)),
	}})
}

// summarizedAccount returns the account with the meter events that summaries include. In the mode Stale, it returns a
// copy without the newest events: https://docs.stripe.com/api/billing/meter-event-summary
func (c *call) summarizedAccount() *account {
	if c.mode != Stale {
		return c.account
	}
	behind, late := *c.account, lag
	if c.lagging > 0 {
		late = c.lagging
	}
	behind.events = slices.DeleteFunc(slices.Clone(behind.events), func(e event) bool {
		return c.fake.now().Sub(e.received) < late
	})
	return &behind
}
