package stripetest

import (
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// eventsListedFor is the time for which events can be listed: https://docs.stripe.com/api/events
const eventsListedFor = 30 * 24 * time.Hour

// happening is an event about an object of the account, as the API lists it. The type event is a meter event. The
// happening's object has the state at the time of the happening, in the account's API version.
type happening struct {
	id     string
	kind   string
	at     time.Time
	object object
	before object // previous values of changed fields
	thin   bool   // an event of API v2, see error_reports.go
	about  string // id of the object of a thin event
}

// emit records an event about an object. It drops the oldest event if that is no longer listed.
func (f *Fake) emit(a *account, at time.Time, kind string, about object) *happening {
	h := &happening{id: f.id("evt"), kind: kind, at: at, object: about}
	a.happenings = append(a.happenings, h)
	if old := a.happenings[0]; f.now().Sub(old.at) > eventsListedFor {
		a.happenings = a.happenings[1:]
	}
	return h
}

// emitInvoice creates an event about the current state of an invoice.
func (f *Fake) emitInvoice(a *account, in *invoice, at time.Time, kind string) {
	f.emit(a, at, kind, a.invoiceObject(in, a.view()))
}

// emitSubscription creates an event about the current state of a subscription, and returns it.
func (f *Fake) emitSubscription(a *account, s *subscription, at time.Time, kind string) *happening {
	return f.emit(a, at, kind, a.subscriptionObject(s, a.view()))
}

// changeSubscription calls do, which changes a subscription, and records an event with the previous values.
func (f *Fake) changeSubscription(a *account, s *subscription, at time.Time, do func()) {
	before := a.subscriptionObject(s, a.view())
	do()
	changed := f.emitSubscription(a, s, at, "customer.subscription.updated")
	maps.DeleteFunc(before, func(field string, value any) bool { return reflect.DeepEqual(value, changed.object[field]) })
	changed.before = before
}

// view returns the view of objects in the account's events.
func (a *account) view() view { return view{version: a.version()} }

// version returns the API version of the events of the account.
func (a *account) version() string {
	if a.APIVersion == "" {
		return "2023-10-16"
	}
	return a.APIVersion
}

// listEvents returns the newest event first.
func (c *call) listEvents() answer {
	types := c.form["types[]"]
	for n := 0; c.form.Has("types[" + strconv.Itoa(n) + "]"); n++ {
		types = append(types, c.form.Get("types["+strconv.Itoa(n)+"]"))
	}
	if c.form.Has("type") && len(types) > 0 {
		return invalid("types", "You may only specify one of these parameters: type, types.")
	}
	between, problem := c.parseRange("created")
	if problem != nil {
		return *problem
	}
	var all []*happening
	for _, h := range slices.Backward(c.happenings) {
		wanted := h.hasType(c.form.Get("type")) && (len(types) == 0 || slices.Contains(types, h.kind))
		if !h.thin && wanted && between(h.at.Unix()) && c.fake.now().Sub(h.at) <= eventsListedFor {
			all = append(all, h)
		}
	}
	slices.SortStableFunc(all, func(x, y *happening) int { return y.at.Compare(x.at) })
	objects := make([]object, len(all))
	for n, h := range all {
		objects[n] = c.eventObject(h)
	}
	return c.page(objects)
}

// getEvent handles GET /v1/events/{id}.
func (c *call) getEvent() answer {
	id := c.request.PathValue("id")
	h := c.happening(id)
	if h == nil || h.thin || c.fake.now().Sub(h.at) > eventsListedFor {
		return missing("event", id)
	}
	return okAnswer(c.eventObject(h))
}

// happening returns the happening with an id, or nil.
func (a *account) happening(id string) *happening {
	for _, h := range a.happenings {
		if h.id == id {
			return h
		}
	}
	return nil
}

// hasType reports whether the event has the type, or belongs to a group of types such as invoice.*
func (h *happening) hasType(pattern string) bool {
	group, wild := strings.CutSuffix(pattern, "*")
	return pattern == "" || h.kind == pattern || wild && strings.HasPrefix(h.kind, group)
}

// eventObject returns the event in the form of the API.
func (a *account) eventObject(h *happening) object {
	data := object{"object": h.object}
	if h.before != nil {
		data["previous_attributes"] = h.before
	}
	return object{
		"object": "event", "id": h.id, "type": h.kind, "api_version": a.version(), "created": h.at.Unix(),
		"livemode": a.livemode(), "pending_webhooks": 1, "request": object{"id": nil, "idempotency_key": nil},
		"data": data,
	}
}

// parseRange parses the call's filters on a field, such as created[gte], and returns a function that reports whether a
// value passes all of them.
func (c *call) parseRange(field string) (func(int64) bool, *answer) {
	holds := map[string]func(value, bound int64) bool{
		"":      func(value, bound int64) bool { return value == bound },
		"[gt]":  func(value, bound int64) bool { return value > bound },
		"[gte]": func(value, bound int64) bool { return value >= bound },
		"[lt]":  func(value, bound int64) bool { return value < bound },
		"[lte]": func(value, bound int64) bool { return value <= bound },
	}
	bounds := map[string]int64{}
	for suffix := range holds {
		if !c.form.Has(field + suffix) {
			continue
		}
		bound, err := strconv.ParseInt(c.form.Get(field+suffix), 10, 64)
		if err != nil {
			problem := invalid(field+suffix, "Invalid integer: %s", c.form.Get(field+suffix))
			return nil, &problem
		}
		bounds[suffix] = bound
	}
	return func(value int64) bool {
		for suffix, bound := range bounds {
			if !holds[suffix](value, bound) {
				return false
			}
		}
		return true
	}, nil
}

// Happened returns the ids of an account's events of a kind, oldest first. Webhook.Event accepts these ids.
func (f *Fake) Happened(account, kind string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.processDue()
	var ids []string
	for _, a := range f.accounts {
		for _, h := range a.happenings {
			if a.ID == account && h.hasType(kind) {
				ids = append(ids, h.id)
			}
		}
	}
	return ids
}
