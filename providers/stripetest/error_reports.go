package stripetest

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"
)

const errorReport = "v1.billing.meter.error_report_triggered"

// validation is the time that one report of rejected events covers. maxSamples is the maximum number of events that a
// report lists. Ten seconds is the time in the example of https://docs.stripe.com/api/v2/core/events/object. The number
// of samples is assumed.
const (
	validation = 10 * time.Second
	maxSamples = 3
)

// unreported holds a meter's rejected events that no error report covers yet.
type unreported struct {
	since       time.Time
	count       int
	identifiers []string // samples
}

// reject records a meter event that Stripe acknowledges but does not count. Except in the mode Drop, the next error
// report covers the event.
func (c *call) reject(identifier string, e event) {
	c.rejections = append(c.rejections, Rejection{identifier, e.meter.ID, e.customer})
	if c.mode == Drop {
		return
	}
	u := c.unreported[e.meter.ID]
	if u == nil {
		u = &unreported{since: e.received.Truncate(time.Second)}
		c.unreported[e.meter.ID] = u
	}
	u.count++
	if len(u.identifiers) < maxSamples {
		u.identifiers = append(u.identifiers, identifier)
	}
}

// reportErrors creates the error reports that are due.
func (f *Fake) reportErrors(a *account) {
	for _, m := range a.meters {
		u := a.unreported[m.ID]
		if u == nil || f.now().Before(u.since.Add(validation)) {
			continue
		}
		f.note(step{Serial: f.serial})
		delete(a.unreported, m.ID)
		report := f.emit(a, u.since.Add(validation), errorReport, u.data())
		report.thin, report.about = true, m.ID
	}
}

// data returns the content of the error report.
func (u *unreported) data() object {
	samples := []object{}
	for _, identifier := range u.identifiers {
		samples = append(samples, object{
			"error_message": "The customer of the event was not found.", "request": object{"identifier": identifier},
		})
	}
	return object{
		"developer_message_summary": fmt.Sprintf("There are %d invalid events", u.count),
		"reason": object{"error_count": u.count, "error_types": []object{
			{"code": "meter_event_customer_not_found", "error_count": u.count, "sample_errors": samples},
		}},
		"validation_start": u.since.Format(time.RFC3339), "validation_end": u.since.Add(validation).Format(time.RFC3339),
	}
}

// thinObject returns the event of an error report as a webhook receives it: without data, which the receiver must
// fetch.
func (a *account) thinObject(h *happening) object {
	return object{
		"object": "v2.core.event", "id": h.id, "type": h.kind, "created": h.at.Format(time.RFC3339), "livemode": a.livemode(), "context": nil,
		"related_object": object{"id": h.about, "type": "billing.meter", "url": "/v1/billing/meters/" + h.about},
	}
}

// coreObject returns the event of an error report with its data, as API v2 returns it.
func (a *account) coreObject(h *happening) object {
	body := a.thinObject(h)
	body["data"], body["reason"] = h.object, nil
	return body
}

// getCoreEvent handles GET /v2/core/events/{id}.
func (c *call) getCoreEvent() answer {
	id := c.request.PathValue("id")
	h := c.happening(id)
	if h == nil || !h.thin || c.fake.now().Sub(h.at) > eventsListedFor {
		return missing("event", id)
	}
	return okAnswer(c.coreObject(h))
}

// listCoreEvents follows https://docs.stripe.com/api/v2/core/events/list. It lists the newest event first. Page
// tokens are numbers, whereas Stripe's are opaque.
func (c *call) listCoreEvents() answer {
	limit, err := strconv.Atoi(c.formOr("limit", "20"))
	skip, err2 := strconv.Atoi(c.formOr("page", "0"))
	if err != nil || err2 != nil || limit < 1 || limit > 100 || skip < 0 {
		return invalid("limit", "This value must be from 1 to 100 (it currently is '%s').", c.form.Get("limit"))
	}
	all := []object{}
	for _, h := range slices.Backward(c.happenings) {
		wanted := c.matchesFilter("object_id", h.about) && (!c.form.Has("types") || slices.Contains(c.form["types"], h.kind))
		if h.thin && wanted && c.fake.now().Sub(h.at) <= eventsListedFor {
			all = append(all, c.coreObject(h))
		}
	}
	page := all[min(skip, len(all)):min(skip+limit, len(all))]
	body := object{"data": page, "next_page_url": nil, "previous_page_url": nil}
	if skip+limit < len(all) {
		next := url.Values{}
		maps.Copy(next, c.form)
		next.Set("page", strconv.Itoa(skip+limit))
		body["next_page_url"] = c.request.URL.Path + "?" + next.Encode()
	}
	return okAnswer(body)
}

// formOr returns a parameter of the call, or standard if the parameter is empty.
func (c *call) formOr(field, standard string) string {
	value := c.form.Get(field)
	setDefault(&value, standard)
	return value
}
