package api

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// Bounds of a request with events.
const (
	eventsPath       = "/v1/events"
	maxBatch         = 1_000
	maxEventsBody    = 8 << 20
	maxSkippedFields = 100
)

type ingestResult struct {
	Accepted   int           `json:"accepted" doc:"Accepted events, including duplicates"`
	Rejected   int           `json:"rejected" doc:"Number of rejected events. 'errors' lists the rules that they break"`
	Duplicates int           `json:"duplicates" doc:"Accepted events with an idempotency_key that was already used. Duplicates add nothing"`
	Conflicts  int           `json:"conflicts" doc:"Duplicates with an idempotency_key that was used for another customer or other content. The usage of these events is not counted"`
	Warnings   []string      `json:"warnings" doc:"Hints about accepted and rejected events, such as unknown fields or event types without a meter"`
	Errors     []ingestError `json:"errors"`

	rejections []metering.Rejection     // rejection of each entry in Errors, with its field
	uncounted  map[metering.Verdict]int // accepted events that a meter could not count
}

type ingestError struct {
	Index   int    `json:"index" doc:"Index of the event in the request, from 0"`
	Code    string `json:"code" example:"timestamp_too_old"`
	Message string `json:"message"`
}

type ingestOutput struct{ Body ingestResult }

func (s *server) registerEvents() {
	huma.Register(s.api, limited(post("ingest-event", eventsPath, EventsWrite, "Send one event",
		"An accepted event is stored and counted in every total before the response is sent. A repeat with the same `idempotency_key` is a duplicate and "+
			"adds nothing.")), s.ingestEvent)
	huma.Register(s.api, limited(post("ingest-events", eventsPath+"/batch", EventsWrite, "Send up to 1,000 events",
		"Each event is accepted or rejected on its own. `errors` lists the rejected events by their index. The accepted events are stored in one transaction.")), s.ingestEvents)
	s.describeEvents()
}

// ingestEvent stores one event. If the event is rejected, the request returns an error.
func (s *server) ingestEvent(ctx context.Context, _ *struct{}) (*ingestOutput, error) {
	return s.withEventsBody(ctx, func(body io.Reader) (ingestResult, error) {
		sent, err := s.readEvent(ctx, body)
		if err != nil {
			return ingestResult{}, err
		}
		event, rejection := sent.judge(s.Now(), s.Retention)
		if rejection != nil {
			return ingestResult{}, s.rejected(ctx, rejection)
		}
		rejected, err := s.rejectBeforeStoring(ctx, []metering.Event{event}, []sentEvent{sent})
		if err != nil {
			return ingestResult{}, err
		}
		if rejection := rejected[0]; rejection != nil {
			return ingestResult{}, s.rejected(ctx, rejection)
		}
		result, err := s.ingest(ctx, []metering.Event{event}, []int{0}, nil)
		if err == nil && result.Rejected > 0 {
			return ingestResult{}, refusal(&result.rejections[0])
		}
		result.Warnings = append(result.Warnings, sentEvents{events: []sentEvent{sent}}.unknownFieldWarnings(ctx)...)
		return result, err
	})
}

// readEvent reads a single event from a body.
func (s *server) readEvent(ctx context.Context, body io.Reader) (sentEvent, error) {
	turns := s.inTurns(ctx, body)
	defer turns.end()
	decoder := newEventDecoder(turns)
	sent, err := decoder.event()
	if err != nil {
		return sent, decoder.malformed(err)
	}
	if sent.rejection != nil && *sent.rejection == notAnObject {
		return sent, refusalAt("body", sent.rejection.Code, "must be a single event; send an array of events to "+eventsPath+"/batch")
	}
	return sent, decoder.atEnd()
}

// rejected counts the rejection of a single event and returns its error.
func (s *server) rejected(ctx context.Context, r *metering.Rejection) error {
	s.countEvents(ctx, ingestResult{Rejected: 1, Errors: []ingestError{{Code: r.Code}}})
	return refusal(r)
}

// refusal returns the error of a rejected single event. The field in the error has the same code as an entry
// in the errors of a batch.
func refusal(r *metering.Rejection) error {
	return refusalIn("body", r)
}

// refusalIn returns the error of a request that fails because of one event. The parameter event is the location
// of the event in the request.
func refusalIn(event string, r *metering.Rejection) error {
	if r.Code == notAnObject.Code {
		return refusalAt(event, r.Code, r.Message)
	}
	return refusalAt(event+"."+r.Field, r.Code, r.Message)
}

// refusalAt returns a CodeInvalid error about one location, with the code of the broken rule.
func refusalAt(location, code, message string) error {
	err := metering.Invalid(location, "%s", message)
	err.Fields[0].Code = metering.FieldCode(code)
	return err
}

// ingestEvents stores the valid events of a batch.
func (s *server) ingestEvents(ctx context.Context, _ *struct{}) (*ingestOutput, error) {
	return s.withEventsBody(ctx, func(body io.Reader) (ingestResult, error) {
		batch, err := s.readBatch(ctx, body)
		if err != nil {
			return ingestResult{}, err
		}
		now := s.Now()
		events, indexes := make([]metering.Event, 0, len(batch.events)), make([]int, 0, len(batch.events))
		var rejections []metering.Rejection
		for i, sent := range batch.events {
			event, rejection := sent.judge(now, s.Retention)
			if rejection != nil {
				rejection.Index = i
				rejections = append(rejections, *rejection)
				continue
			}
			events, indexes = append(events, event), append(indexes, i)
		}
		events, indexes, rejections, err = s.withoutRejected(ctx, batch.events, events, indexes, rejections)
		if err != nil {
			return ingestResult{}, err
		}
		result, err := s.ingest(ctx, events, indexes, rejections)
		result.Warnings = append(result.Warnings, batch.unknownFieldWarnings(ctx)...)
		return result, err
	})
}

// readBatch reads a batch of events from a body.
func (s *server) readBatch(ctx context.Context, body io.Reader) (sentEvents, error) {
	turns := s.inTurns(ctx, body)
	defer turns.end()
	decoder := newEventDecoder(turns)
	decoder.reserve = exchangeOf(ctx).body.reserveForEvents
	batch, err := decoder.batch()
	if err != nil {
		return sentEvents{}, err
	}
	if principalOf(ctx).Tenant.Strict && len(batch.ignored) > 0 {
		return sentEvents{}, metering.Invalid(shortened("body."+batch.ignored[0]), "is not a field of a batch: this strict tenant accepts only the field events")
	}
	if len(batch.events) == 0 {
		return sentEvents{}, metering.Invalid("body.events", "must contain at least one event")
	}
	return batch, nil
}

// withEventsBody passes the request body to store. It rejects a wrong Content-Type before the body is read.
func (s *server) withEventsBody(ctx context.Context, store func(body io.Reader) (ingestResult, error)) (*ingestOutput, error) {
	request := exchangeOf(ctx).request
	if err := eventsMediaType(request.Header.Get("Content-Type")); err != nil {
		return nil, err
	}
	result, err := store(request.Body)
	if err != nil {
		return nil, err
	}
	return &ingestOutput{result}, nil
}

func eventsMediaType(header string) error {
	media, _, _ := strings.Cut(header, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	if media == "" || media == "application/json" || strings.HasSuffix(media, "+json") {
		return nil
	}
	return metering.Errorf(codeMediaType, "the content type of events must be application/json")
}

// ingest stores valid events and returns the result of the whole request. indexes are the events' positions
// in the request.
func (s *server) ingest(ctx context.Context, events []metering.Event, indexes []int, rejections []metering.Rejection) (ingestResult, error) {
	var outcomes []usage.Outcome
	if len(events) > 0 {
		var err error
		// The writer needs the events even if the client disconnects. It has its own deadline.
		outcomes, err = s.Writer.Ingest(context.WithoutCancel(ctx), principalOf(ctx).Tenant.ID, events)
		if err != nil {
			return ingestResult{}, err
		}
	}
	return s.reportIngest(ctx, events, indexes, outcomes, rejections), nil
}

// reportIngest returns and counts the results of a request with events.
func (s *server) reportIngest(ctx context.Context, events []metering.Event, indexes []int, outcomes []usage.Outcome, rejections []metering.Rejection) ingestResult {
	result := ingestResultOf(events, indexes, outcomes, append(rejections, storingRejections(outcomes, indexes)...))
	s.countEvents(ctx, result)
	result.Warnings = append(result.Warnings, s.earlyWarnings(ctx, events, indexes, outcomes)...)
	result.Warnings = append(result.Warnings, s.unpricedWarnings(ctx, events, indexes, outcomes)...)
	return result
}

// storingRejections returns the rejections that only the database could decide: events that are older than the stored
// idempotency keys, and conflicts that the tenant rejects.
func storingRejections(outcomes []usage.Outcome, indexes []int) (rejections []metering.Rejection) {
	for i, outcome := range outcomes {
		var r metering.Rejection
		switch {
		case outcome.Forgotten:
			r = *metering.Forgotten()
		case outcome.Refused:
			r = *metering.KeyConflict()
		default:
			continue
		}
		r.Index = indexes[i]
		rejections = append(rejections, r)
	}
	return rejections
}

// ingestResultOf returns the result of a request with events, without counting it. It contains the rejections, and
// warnings about accepted and rejected events.
func ingestResultOf(events []metering.Event, indexes []int, outcomes []usage.Outcome, rejections []metering.Rejection) ingestResult {
	result := ingestResult{Rejected: len(rejections), Warnings: []string{}, Errors: []ingestError{}, rejections: rejections}
	for _, r := range rejections {
		message := r.Field + " " + r.Message
		result.Errors = append(result.Errors, ingestError{r.Index, r.Code, message})
		result.Warnings = append(result.Warnings, fmt.Sprintf("events[%d] is rejected: %s", r.Index, message))
	}
	warned := make(map[string]bool)
	once := func(about, format string, args ...any) {
		if !warned[about] {
			warned[about] = true
			result.Warnings = append(result.Warnings, fmt.Sprintf(format, args...))
		}
	}
	for i, outcome := range outcomes {
		if outcome.Forgotten || outcome.Refused {
			continue
		}
		result.Accepted++
		if outcome.Duplicate {
			result.Duplicates++
		}
		if outcome.Conflict {
			result.Conflicts++
			result.Warnings = append(result.Warnings, conflictWarning(indexes[i], outcome.Unkept))
		}
		eventType := events[i].EventType
		switch {
		case outcome.Archived != "":
			once(eventType, "the meter of event type %q is archived: the event is stored but not counted until meter %q is unarchived or another meter for the type is created", eventType, outcome.Archived)
		case outcome.Unmetered:
			once(eventType, "no meter counts event type %q: the event is stored and is counted when a meter for the type is created", eventType)
		}
		for _, property := range outcome.Ungrouped {
			once(eventType+"\x00"+property, "events[%d] has no property %q, by which a meter of event type %q groups: it counts in the group null", indexes[i], property, eventType)
		}
		for _, slug := range outcome.LongKeys {
			once("long\x00"+slug, "events[%d] counts in the group $other of meter %q: its group_by properties exceed %d bytes as JSON; send shorter values to keep groups apart",
				indexes[i], slug, metering.MaxGroupKeyBytes)
		}
		for _, slug := range outcome.Crowded {
			once("crowded\x00"+slug, "events[%d] counts in the group $other of meter %q: the meter has %d groups already; group by properties with fewer values to keep groups apart",
				indexes[i], slug, metering.MaxGroupsPerMeter)
		}
		for _, u := range outcome.Unusable {
			once(string(u.Rule)+"\x00"+u.MeterSlug, "events[%d] is stored but not counted by meter %q (%s): properties %s", indexes[i], u.MeterSlug, u.Rule, valueProblem(u))
		}
		result.countUncounted(outcome.Unusable)
		for _, u := range outcome.Unread {
			once("unread\x00"+u.MeterSlug, "events[%d] has a negative value, but meter %q reads the property %q: its value is ignored; to correct the meter, send a negative %q",
				indexes[i], u.MeterSlug, u.Property, u.Property)
		}
		for _, slug := range outcome.Negative {
			once("negative\x00"+slug, "events[%d] has a negative value, but meter %q counts events: the event adds 1 and corrects nothing", indexes[i], slug)
		}
	}
	return result
}

// countUncounted adds an event that meters could not count to r.uncounted, once for each broken rule.
func (r *ingestResult) countUncounted(values []usage.UnusableValue) {
	for i, u := range values {
		if slices.ContainsFunc(values[:i], func(earlier usage.UnusableValue) bool { return earlier.Rule == u.Rule }) {
			continue
		}
		if r.uncounted == nil {
			r.uncounted = make(map[metering.Verdict]int)
		}
		r.uncounted[u.Rule]++
	}
}

func conflictWarning(index int, unkept bool) string {
	const warning = "events[%d] repeats an idempotency_key with other content: it is not counted, because only the first event with a key counts"
	if unkept {
		return fmt.Sprintf(warning+"; it is not stored either, because the tenant has too many conflicts: dismiss some, then send this event with another key", index)
	}
	return fmt.Sprintf(warning+"; GET /v1/events/conflicts lists it", index)
}

// sentEvent is a decoded event, or its rejection.
type sentEvent struct {
	metering.SentEvent
	rejection *metering.Rejection
	ignored   []string // unknown fields
}

// sentEvents is the decoded events of a request.
type sentEvents struct {
	events  []sentEvent
	ignored []string // unknown fields of the batch
}

// unknownFieldWarnings returns warnings about unknown fields. It returns none for a strict tenant, because a strict
// tenant rejects events with unknown fields.
func (s sentEvents) unknownFieldWarnings(ctx context.Context) []string {
	if principalOf(ctx).Tenant.Strict {
		return nil
	}
	var warnings fieldWarnings
	warnings.addFields("the request", s.ignored)
	for i, e := range s.events {
		if len(e.ignored) > 0 {
			warnings.addFields(fmt.Sprintf("events[%d]", i), e.ignored)
		}
	}
	return warnings.texts
}

// judge validates a sent event. It returns the event to store, or the rejection of the event.
func (e sentEvent) judge(now time.Time, retention metering.Retention) (metering.Event, *metering.Rejection) {
	if e.rejection != nil {
		return metering.Event{}, e.rejection
	}
	event, rejection := e.SentEvent.Judge(now)
	if rejection == nil {
		rejection = retention.Judge(event, now)
	}
	if rejection != nil {
		return metering.Event{}, rejection
	}
	return event, nil
}

// describeEvents documents the request bodies of the operations that ingest events. These operations decode
// their bodies themselves, so huma does not know the schemas.
func (s *server) describeEvents() {
	schemas := s.api.OpenAPI().Components.Schemas.Map()
	schemas["Event"], schemas["EventBatch"] = eventSchema(), batchSchema()
	s.describeBody(eventsPath, "Event")
	s.describeBody(eventsPath+"/batch", "EventBatch")
}

func (s *server) describeBody(path, schema string) {
	reference := &huma.Schema{Ref: "#/components/schemas/" + schema}
	op := s.api.OpenAPI().Paths[path].Post
	describeLimit(op)
	op.RequestBody = &huma.RequestBody{
		Required: true,
		Content:  map[string]*huma.MediaType{"application/json": {Schema: reference}},
	}
}

func batchSchema() *huma.Schema {
	least, most := 1, maxBatch
	return &huma.Schema{
		Type:                 huma.TypeObject,
		Required:             []string{"events"},
		AdditionalProperties: true,
		Properties: map[string]*huma.Schema{
			"events": {Type: huma.TypeArray, MinItems: &least, MaxItems: &most, Items: &huma.Schema{Ref: "#/components/schemas/Event"}},
		},
	}
}

func eventSchema() *huma.Schema {
	short := func(doc string) *huma.Schema {
		least, most := 1, 255
		return &huma.Schema{Type: huma.TypeString, MinLength: &least, MaxLength: &most, Description: doc}
	}
	decimal := decimalSchema{}.Schema(nil)
	decimal.Description = "Quantity that a meter with the aggregation 'sum' and without a value_property adds. Absolute value below 10^18, at most 12 decimals"
	decimal.Default = 1
	properties := objectSchema{}.Schema(nil)
	properties.Description = "Any JSON object of at most 16 KiB. A meter can group usage by these properties"
	return &huma.Schema{
		Type:                 huma.TypeObject,
		Required:             []string{"event_type", "customer_id"},
		AdditionalProperties: true,
		Properties: map[string]*huma.Schema{
			"event_type":      short("Kind of event, such as api_call. Each meter counts the events of one type"),
			"customer_id":     short("The customer's external ID. An unknown ID creates a customer, unless the tenant is strict"),
			"timestamp":       {Type: huma.TypeString, Format: "date-time", Description: "Time of the event. Default: now. At most five years in the past and one hour in the future. With an idempotency_key, not older than the retention of events"},
			"value":           decimal,
			"properties":      properties,
			"idempotency_key": short("Key that makes repeats safe. A repeat with the same key is accepted and adds nothing"),
		},
	}
}
