package api

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// previewTime is the maximum time for which a preview with a start reads events.
const previewTime = time.Minute

// PreviewSpan is the range of a preview.
type PreviewSpan struct {
	Start *SentTime `json:"start,omitempty" doc:"Start of the range, inclusive. At most 92 days before 'end'. Without 'start', the preview reads the latest 100 events before 'end'. The preview reads fewer events if they exceed 1 MiB or if the search takes about two seconds"`
	End   *SentTime `json:"end,omitempty" doc:"End of the range, exclusive. Default: one hour from now, the latest time that an event can have"`
}

type previewMeterInput struct {
	Body struct {
		MeterDefinition
		PreviewSpan
	}
}

type previewMeterChangeInput struct {
	Slug string `path:"slug" maxLength:"64"`
	Body struct {
		MeterChange
		PreviewSpan
	}
}

type meterPreviewOutput struct{ Body meterPreview }

type meterPreview struct {
	Period usagePeriod `json:"period"`

	PreviewedUsage

	Uncounted      []eventRejections   `json:"uncounted" doc:"Events that the definition does not count, by reason, most frequent first. The code is filtered_out, value_missing or value_invalid"`
	Customers      []previewedCustomer `json:"customers" doc:"At most 1,000 customers with events, in order of the absolute difference between 'value' and current_value, largest first, then of creation. Without current_value, in order of the absolute 'value'"`
	OtherCustomers int                 `json:"other_customers" doc:"Number of customers with events that are not listed"`
	Sample         []previewedEvent    `json:"sample" doc:"The latest 100 events that were read, newest first"`
}

// PreviewedUsage is the usage of events under an unsaved definition.
type PreviewedUsage struct {
	EventsRead   int               `json:"events_read" doc:"Number of events that were read"`
	Counted      int               `json:"counted" doc:"Number of events that the definition counts"`
	Value        metering.Decimal  `json:"value" doc:"Usage under the definition, including late usage"`
	CurrentValue *metering.Decimal `json:"current_value,omitempty" doc:"Usage of the same events under the definition by which usage is read now. Absent for a definition without a meter, and while the meter's first backfill is not complete"`
}

type previewedCustomer struct {
	CustomerID string `json:"customer_id" doc:"The customer's external ID"`

	PreviewedUsage
}

// previewedEvent is an event with the result of counting it under the definition.
type previewedEvent struct {
	ID         string            `json:"id"`
	CustomerID string            `json:"customer_id" doc:"The customer's external ID"`
	Timestamp  time.Time         `json:"timestamp"`
	Rule       metering.Verdict  `json:"rule" doc:"Whether the definition counts the event, and the reason if it does not:\n- filtered_out: a filter excludes the event, or the customer is erased and the meter did not count the event before the erasure.\n- value_missing: value_property is missing or null.\n- value_invalid: value_property is not a number with an absolute value below 10^18."`
	Value      *metering.Decimal `json:"value,omitempty" doc:"Value that the definition reads from the event. Present if the event is counted. A meter with the aggregation 'count' adds 1 instead"`
	GroupKey   json.RawMessage   `json:"group_key,omitempty" doc:"Value of each group_by property. Present if the event is counted"`
	Property   string            `json:"property,omitempty" doc:"Property of the first filter that excludes the event, or value_property. Absent for a counted event and for events of erased customers"`
}

func (s *server) registerMeterPreviews() {
	about := "Measures stored events under the definition, and saves nothing.\n\n" +
		"- Without `start`, the preview reads the latest 100 events. `period` starts at the oldest of these events.\n" +
		"- With `start`, the preview reads all events of the range: at most 92 days, 1,000,000 events and 20,000 customers. Beyond that, the request returns 422.\n" +
		"- The usage includes late usage. A preview does not distinguish closed periods.\n" +
		"- The response has no properties of events, except for the values of `group_by`.\n" +
		"- Only a request with `start` waits for its turn as a heavy operation.\n" +
		"- A preview is recorded in the audit log like a list of events."
	huma.Register(s.api, previewing(post("preview-meter", "/v1/meters/preview", EventsRead, "Preview the usage of a new meter", about)), s.previewMeter)
	huma.Register(s.api, previewing(post("preview-meter-change", "/v1/meters/{slug}/preview", EventsRead, "Preview the usage of a changed meter",
		about+"\n"+
			"- Fields that the body omits keep the meter's values. `current_value` is the usage under the definition by which usage is read now.\n"+
			"- An archived meter is previewed as if it were unarchived. `current_value` excludes the events that the archived meter did not count.")), s.previewMeterChange)
}

// previewing marks an operation as read-only and documents it as heavy. A request is heavy only if its body has
// a start, so preview waits for the turn after the body is decoded.
func previewing(op huma.Operation) huma.Operation {
	op.Metadata["reads"] = true
	op.Extensions["x-heavy"] = true
	return op
}

func (s *server) previewMeter(ctx context.Context, in *previewMeterInput) (*meterPreviewOutput, error) {
	query := usage.PreviewQuery{Definition: in.Body.version()}
	if err := cmp.Or(metering.ValidEventType(in.Body.EventType), query.Definition.Validate()); err != nil {
		return nil, err
	}
	return s.preview(ctx, query, in.Body.PreviewSpan)
}

func (s *server) previewMeterChange(ctx context.Context, in *previewMeterChangeInput) (*meterPreviewOutput, error) {
	m, err := s.meter(ctx, in.Slug)
	if err != nil {
		return nil, err
	}
	definition, current, err := s.Store.Meters.Changed(ctx, principalOf(ctx).Tenant.ID, m.Slug, in.Body.change())
	if err != nil {
		return nil, err
	}
	return s.preview(ctx, usage.PreviewQuery{Definition: definition, Current: current}, in.Body.PreviewSpan)
}

// preview runs a query in a span. If the span has a start, the query is heavy and waits for its turn.
func (s *server) preview(ctx context.Context, query usage.PreviewQuery, span PreviewSpan) (*meterPreviewOutput, error) {
	tenant := principalOf(ctx).Tenant.ID
	var err error
	if query.Range, err = s.rangeOf(span); err != nil {
		return nil, err
	}
	query.Latest, query.Search = span.Start == nil, usage.Search{Now: s.Now, Budget: s.SearchTime}
	if !query.Latest {
		query.Search.Budget = previewTime
		if err := exchangeOf(ctx).beginHeavy(ctx, s.heavy, tenant); err != nil {
			return nil, err
		}
	}
	p, err := s.Store.Events.Preview(ctx, tenant, query)
	if err != nil {
		return nil, err
	}
	if err := s.auditListing(ctx, usage.EventFilter{Range: p.Range}); err != nil {
		return nil, err
	}
	return &meterPreviewOutput{showPreview(p, query.Current != nil)}, nil
}

// rangeOf returns the range of a preview. It starts at the zero time if the span has no start.
func (s *server) rangeOf(span PreviewSpan) (metering.Range, error) {
	r := metering.Range{End: metering.Instant(s.Now()).Add(exportLead)}
	if end := span.End.pointer(); end != nil {
		r.End = *end
	}
	start := span.Start.pointer()
	if start == nil {
		return r, nil
	}
	r.Start = *start
	if r.Empty() {
		return r, metering.Invalid("body.end", "must be after start")
	}
	if r.End.Sub(r.Start) > maxCounted {
		return r, metering.Invalid("body.start", "must be at most 92 days before the end")
	}
	return r, nil
}

func showPreview(p usage.MeterPreview, hasCurrent bool) meterPreview {
	shown := meterPreview{
		Period: usagePeriod{p.Range.Start.UTC(), p.Range.End.UTC()}, PreviewedUsage: showPreviewed(p.PreviewedUsage, hasCurrent),
		Uncounted: []eventRejections{}, Customers: make([]previewedCustomer, 0, len(p.Customers)), OtherCustomers: p.Others,
		Sample: make([]previewedEvent, 0, len(p.Sample)),
	}
	for rule, events := range p.Uncounted {
		shown.Uncounted = append(shown.Uncounted, eventRejections{string(rule), int64(events)})
	}
	sortRules(shown.Uncounted)
	for _, c := range p.Customers {
		shown.Customers = append(shown.Customers, previewedCustomer{c.ExternalID, showPreviewed(c.PreviewedUsage, hasCurrent)})
	}
	for _, e := range p.Sample {
		event := previewedEvent{
			ID: e.ID.String(), CustomerID: e.ExternalID, Timestamp: e.At, Rule: e.Verdict, GroupKey: e.Group.Key, Property: e.Property,
		}
		if e.Verdict == metering.Counted {
			event.Value = &e.Value
		}
		shown.Sample = append(shown.Sample, event)
	}
	return shown
}

func showPreviewed(u usage.PreviewedUsage, hasCurrent bool) PreviewedUsage {
	shown := PreviewedUsage{EventsRead: u.Events, Counted: u.Counted, Value: u.Usage}
	if hasCurrent {
		shown.CurrentValue = &u.Current
	}
	return shown
}
