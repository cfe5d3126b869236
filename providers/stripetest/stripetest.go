// Package stripetest is a fake of Stripe's HTTP API for usage-based billing. It stores subscriptions, usage
// records and meter events, and follows Stripe's rules for them. It bills them at the end of each period, by
// its own clock. It simulates failures on request. If Stripe's documentation leaves a rule open, the fake
// applies the stricter one, and a comment says that it is assumed.
//
// The invoice of a period is a draft for an hour, or until the time in automatically_finalizes_at. The fake
// counts the usage when it creates the draft, and once more when it finalizes the invoice. The API shows the
// first count until then. Subscriptions can have trials, cancellations, thresholds, paused collection and
// either billing mode. Final invoices can be paid, voided, marked uncollectible and credited. Each of these
// changes creates an event, which the API lists for thirty days.
//
//	POST /_seed      accounts, customers, meters, prices and subscriptions: a Seed
//	GET  /_state     the requests, and the bill if all invoices were finalized now: a State
//	POST /_clock     {"advance_seconds":3600} or {"now":1767225600}
//	POST /_webhook   send a signed event: {"type":"invoice.created","object":"in_1","url":…,"secret":…},
//	                 or one that has happened: {"event":"evt_1"}
//	POST /behave     a Behaviour, for the next calls
//
// All other paths are Stripe's API.
package stripetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

const (
	maxBody     = 1 << 20
	maxRequests = 10_000 // older requests are dropped: the fake may run for weeks
	basil       = "2025-03-31"
)

// Options are the options of a fake.
type Options struct {
	Now        func() time.Time          // nil: time.Now; Advance adds to it
	Validate   func(*http.Request) error // called for each authorized request to a known path before it is processed
	APIVersion string                    // API version of all responses; "": the version that a request asks for
}

// Fake is a fake of Stripe with all of its accounts.
type Fake struct {
	options Options
	routes  *http.ServeMux

	mu        sync.Mutex
	ahead     time.Duration
	serial    int
	accounts  []*account
	keys      map[string]credential
	behaviour Behaviour
	requests  []Request
	journal   *json.Encoder // nil: no journal
}

// route is an operation, with the permission that a restricted key needs for it.
type route struct {
	pattern    string
	permission string
	do         operation
}

var routes = []route{
	{"GET /v1/account", "accounts_kyc_basic_read", (*call).getAccount},
	{"POST /v1/test_helpers/test_clocks", "billing_clock_write", (*call).createClock},
	{"GET /v1/test_helpers/test_clocks/{id}", "billing_clock_read", (*call).getClock},
	{"POST /v1/test_helpers/test_clocks/{id}/advance", "billing_clock_write", (*call).advanceClock},
	{"DELETE /v1/test_helpers/test_clocks/{id}", "billing_clock_write", (*call).deleteClock},
	{"POST /v1/customers", "customer_write", (*call).createCustomer},
	{"DELETE /v1/customers/{id}", "customer_write", (*call).deleteCustomer},
	{"POST /v1/products", "product_write", (*call).createProduct},
	{"POST /v1/products/{id}", "product_write", (*call).updateProduct},
	{"POST /v1/prices", "plan_write", (*call).createPrice},
	{"POST /v1/prices/{id}", "plan_write", (*call).updatePrice},
	{"GET /v1/prices", "plan_read", (*call).listPrices},
	{"GET /v1/prices/{id}", "plan_read", (*call).getPrice},
	{"POST /v1/billing/meters", "billing_meter_write", (*call).createMeter},
	{"GET /v1/billing/meters", "billing_meter_read", (*call).listMeters},
	{"POST /v1/billing/meters/{id}/deactivate", "billing_meter_write", (*call).deactivateMeter},
	{"POST /v1/subscriptions", "subscription_write", (*call).createSubscription},
	{"DELETE /v1/subscriptions/{id}", "subscription_write", (*call).cancelSubscription},
	{"GET /v1/subscriptions", "subscription_read", (*call).listSubscriptions},
	{"GET /v1/subscriptions/{id}", "subscription_read", (*call).getSubscription},
	{"POST /v1/subscriptions/{id}", "subscription_write", (*call).updateSubscription},
	{"GET /v1/subscription_items", "subscription_read", (*call).listItems},
	{"POST /v1/subscription_items", "subscription_write", (*call).createItem},
	{"POST /v1/subscription_items/{id}", "subscription_write", (*call).updateItem},
	{"DELETE /v1/subscription_items/{id}", "subscription_write", (*call).deleteItem},
	{"POST /v1/subscription_items/{id}/usage_records", "usage_record_write", (*call).createUsageRecord},
	{"GET /v1/subscription_items/{id}/usage_record_summaries", "usage_record_read", (*call).listUsageRecordSummaries},
	{"GET /v1/billing/meters/{id}", "billing_meter_read", (*call).getMeter},
	{"GET /v1/billing/meters/{id}/event_summaries", "billing_meter_event_read", (*call).listEventSummaries},
	{"POST /v1/billing/meter_events", "billing_meter_event_write", (*call).createMeterEvent},
	{"GET /v1/billing/credit_balance_summary", "billing_credit_balance_read", (*call).getCreditBalance},
	{"POST /v1/invoiceitems", "invoice_write", (*call).createInvoiceItem},
	{"GET /v1/invoiceitems", "invoice_read", (*call).listInvoiceItems},
	{"GET /v1/invoiceitems/{id}", "invoice_read", (*call).getInvoiceItem},
	{"POST /v1/invoiceitems/{id}", "invoice_write", (*call).updateInvoiceItem},
	{"DELETE /v1/invoiceitems/{id}", "invoice_write", (*call).deleteInvoiceItem},
	{"GET /v1/invoices", "invoice_read", (*call).listInvoices},
	{"POST /v1/invoices", "invoice_write", (*call).createInvoice},
	{"GET /v1/invoices/{id}", "invoice_read", (*call).getInvoice},
	{"GET /v1/invoices/{id}/lines", "invoice_read", (*call).listInvoiceLines},
	{"POST /v1/invoices/{id}", "invoice_write", (*call).updateInvoice},
	{"POST /v1/invoices/{id}/lines/{line}", "invoice_write", (*call).updateLine},
	{"POST /v1/invoices/{id}/finalize", "invoice_write", (*call).finalizeInvoice},
	{"POST /v1/invoices/{id}/pay", "invoice_write", (*call).payInvoice},
	{"POST /v1/invoices/{id}/void", "invoice_write", (*call).voidInvoice},
	{"POST /v1/invoices/{id}/mark_uncollectible", "invoice_write", (*call).markUncollectible},
	{"POST /v1/credit_notes", "credit_note_write", (*call).createCreditNote},
	{"GET /v1/credit_notes", "credit_note_read", (*call).listCreditNotes},
	{"GET /v1/credit_notes/{id}", "credit_note_read", (*call).getCreditNote},
	{"POST /v1/credit_notes/{id}/void", "credit_note_write", (*call).voidCreditNote},
	{"GET /v1/events", "event_read", (*call).listEvents},
	{"GET /v1/events/{id}", "event_read", (*call).getEvent},
	{"GET /v2/core/events", "event_read", (*call).listCoreEvents},
	{"GET /v2/core/events/{id}", "event_read", (*call).getCoreEvent},
	{"/", "", (*call).unknown},
}

// New returns a fake without accounts.
func New(options Options) *Fake {
	if options.Now == nil {
		options.Now = time.Now
	}
	f := &Fake{options: options, routes: http.NewServeMux(), keys: map[string]credential{}}
	f.routes.HandleFunc("POST /_seed", f.serveSeed)
	f.routes.HandleFunc("GET /_state", f.serveState)
	f.routes.HandleFunc("POST /_clock", f.serveClock)
	f.routes.HandleFunc("POST /_webhook", f.serveWebhook)
	f.routes.HandleFunc("POST /behave", f.serveBehave)
	for _, r := range routes {
		f.routes.HandleFunc(r.pattern, func(w http.ResponseWriter, req *http.Request) { f.serve(w, req, r) })
	}
	return f
}

// ServeHTTP serves the API of Stripe and the endpoints for tests.
func (f *Fake) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.routes.ServeHTTP(w, r) }

// Now returns the fake's time.
func (f *Fake) Now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now()
}

// now returns the time of the fake. The caller has the lock.
func (f *Fake) now() time.Time { return f.options.Now().Add(f.ahead).UTC() }

// Advance advances the fake's clock. It ends the periods and finalizes the invoices that are then due.
func (f *Fake) Advance(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.note(step{Serial: f.serial, Advance: d})
	f.ahead += d
	f.processDue()
}

// serveClock handles POST /_clock, which advances the time of the fake.
func (f *Fake) serveClock(w http.ResponseWriter, r *http.Request) {
	var in struct {
		AdvanceSeconds int64 `json:"advance_seconds"`
		Now            int64 `json:"now"`
	}
	if !decode(w, r, &in) {
		return
	}
	d := time.Duration(in.AdvanceSeconds) * time.Second
	if in.Now != 0 {
		d = time.Unix(in.Now, 0).Sub(f.Now())
	}
	f.Advance(d)
	encode(w, http.StatusOK, map[string]int64{"now": f.Now().Unix()})
}

// id returns the next identifier with a prefix.
func (f *Fake) id(prefix string) string {
	f.serial++
	return fmt.Sprintf("%s_fake%d", prefix, f.serial)
}

// Request is a call and the status of its response.
type Request struct {
	At             time.Time `json:"at"`
	Method         string    `json:"method"`
	Path           string    `json:"path"`
	Form           string    `json:"form"`
	IdempotencyKey string    `json:"idempotency_key,omitempty"`
	Status         int       `json:"status"` // status of the response, even if the response was dropped
	Replayed       bool      `json:"replayed,omitempty"`
}

// call is a request in progress. Its methods are the operations, and run under the fake's lock.
type call struct {
	*account
	fake    *Fake
	request *http.Request
	form    url.Values
	key     credential
	version string
	mode    Mode
	lagging time.Duration
}

// operation is the implementation of an endpoint.
type operation func(*call) answer

// answer is the response to a call. If unsaved is set, the call failed before the endpoint processed it, so
// its idempotency key can be used again: https://docs.stripe.com/api/idempotent_requests
type answer struct {
	status   int
	body     any
	header   http.Header
	unsaved  bool
	replayed bool
}

// okAnswer returns a successful response with a body.
func okAnswer(body any) answer { return answer{status: http.StatusOK, body: body} }

// refused returns an error in Stripe's format. If code is empty, Stripe's error has no code either.
func refused(status int, code, param, format string, args ...any) answer {
	kind := "invalid_request_error"
	if status >= 500 {
		kind = "api_error"
	}
	problem := map[string]any{"type": kind, "message": fmt.Sprintf(format, args...)}
	if code != "" {
		problem["code"] = code
	}
	if param != "" {
		problem["param"] = param
	}
	return answer{status: status, body: map[string]any{"error": problem}}
}

// invalid returns the error for an invalid parameter.
func invalid(param, format string, args ...any) answer {
	return refused(http.StatusBadRequest, "", param, format, args...)
}

// missing returns the error for an object in the path that does not exist.
func missing(what, id string) answer {
	return refused(http.StatusNotFound, "resource_missing", "id", "No such %s: '%s'", what, id)
}

// notSaved returns the response with unsaved set.
func (a answer) notSaved() answer {
	a.unsaved = true
	return a
}

// unknown returns the error for an unknown path.
func (c *call) unknown() answer {
	return refused(http.StatusNotFound, "", "", "Unrecognized request URL (%s: %s).", c.request.Method, c.request.URL.Path).notSaved()
}

// serve responds to a call of Stripe's API, and records the call in the list of requests and in the journal.
func (f *Fake) serve(w http.ResponseWriter, r *http.Request, to route) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, fmt.Sprintf("body: %v", err), http.StatusBadRequest)
		return
	}
	text := string(body)
	if r.Method == http.MethodGet || r.Method == http.MethodDelete && text == "" {
		text = r.URL.RawQuery
	}
	form, err := url.ParseQuery(text)
	if err != nil {
		http.Error(w, fmt.Sprintf("form: %v", err), http.StatusBadRequest)
		return
	}
	again := r.Clone(r.Context())
	again.Body = io.NopCloser(bytes.NewReader(body))

	f.mu.Lock()
	b, serial := f.takeBehaviour(r), f.serial
	id := f.id("req")
	a := f.process(&call{fake: f, request: again, form: form, version: f.version(r)}, b, to)
	f.noteCall(r, text, b, a, serial)
	f.recordRequest(Request{f.now(), r.Method, r.URL.Path, text, r.Header.Get("Idempotency-Key"), a.status, a.replayed})
	f.mu.Unlock()

	if b.Mode == Hang {
		<-r.Context().Done()
	}
	if b.Mode == Hang || b.DropAnswer {
		panic(http.ErrAbortHandler) // closes the connection without a response
	}
	w.Header().Set("Request-Id", id)
	a.write(w)
}

// version returns the API version of a request.
func (f *Fake) version(r *http.Request) string {
	if f.options.APIVersion != "" {
		return f.options.APIVersion
	}
	return r.Header.Get("Stripe-Version")
}

// recordRequest stores a request, and drops the oldest one if there are too many.
func (f *Fake) recordRequest(r Request) {
	f.requests = append(f.requests, r)
	if len(f.requests) > maxRequests {
		f.requests = f.requests[len(f.requests)-maxRequests:]
	}
}

// process authenticates a call, runs the route's operation and returns the response, which depends on the behaviour.
// Calls with the same idempotency key run the operation only once. Like Stripe, process allows only one meter event at
// a time for a meter and customer.
func (f *Fake) process(c *call, b Behaviour, to route) answer {
	f.processDue()
	if b.failsEarly() {
		return b.answer()
	}
	key, ok := f.keys[apiKey(c.request)]
	if !ok {
		return refused(http.StatusUnauthorized, "", "", "Invalid API Key provided: ****").notSaved()
	}
	c.key, c.account = key, key.account
	if !key.may(to.permission) {
		return c.forbidden(to.permission)
	}
	if f.options.Validate != nil && c.request.Pattern != "/" {
		if err := f.options.Validate(c.request); err != nil {
			return invalid("", "%v", err).notSaved()
		}
	}
	c.mode, c.lagging = b.Mode, time.Duration(b.LagSeconds)*time.Second
	return c.runOnce(func() answer { return c.runExclusively(b, to.do) })
}

// apiKey returns the API key, in either form of https://docs.stripe.com/api/authentication.
func apiKey(r *http.Request) string {
	if user, _, ok := r.BasicAuth(); ok {
		return user
	}
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

// runExclusively runs do while it holds the lock for the call's meter and customer. It returns an error if another call
// holds the lock, because Stripe allows one call at a time: https://docs.stripe.com/rate-limits. It also applies the
// delay and the failure of the behaviour.
func (c *call) runExclusively(b Behaviour, do operation) answer {
	if what := c.meterAndCustomer(); what != "" {
		if c.busy[what] {
			return lockTimeout()
		}
		c.busy[what] = true
		defer delete(c.busy, what)
	}
	if b.DelayMS > 0 || b.Until != nil {
		var delayed <-chan time.Time
		if b.DelayMS > 0 {
			delayed = time.After(time.Duration(b.DelayMS) * time.Millisecond)
		}
		c.fake.mu.Unlock()
		select {
		case <-delayed:
		case <-b.Until:
		case <-c.request.Context().Done():
		}
		c.fake.mu.Lock()
		c.fake.processDue()
	}
	if b.failing() && !b.Done {
		return b.answer()
	}
	a := do(c)
	if b.failing() {
		return b.answer()
	}
	return a
}

// write writes the answer to the response.
func (a answer) write(w http.ResponseWriter) {
	maps.Copy(w.Header(), a.header)
	if a.replayed {
		w.Header().Set("Idempotent-Replayed", "true")
	}
	encode(w, a.status, a.body)
}

// encode writes a response as JSON.
func encode(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, fmt.Sprintf("encode: %v", err), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text) // fails only if the client has disconnected
}

// decode reads the request's JSON body. If the body is invalid, decode writes the error response and returns false.
func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		http.Error(w, fmt.Sprintf("body: %v", err), http.StatusBadRequest)
		return false
	}
	return true
}

// updateMetadata sets the metadata fields that the call names, and keeps the other fields. An empty value deletes a
// field. updateMetadata replaces the map, because recorded events contain the previous map.
func (c *call) updateMetadata(metadata *map[string]string) {
	changed := c.pairs("metadata")
	if len(changed) == 0 {
		return
	}
	all := map[string]string{}
	maps.Copy(all, *metadata)
	maps.Copy(all, changed)
	maps.DeleteFunc(all, func(_, value string) bool { return value == "" })
	*metadata = all
}
