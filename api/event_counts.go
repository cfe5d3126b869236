package api

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// maxCounted is the maximum range of a query. It covers the 90 days for which counts are kept.
const maxCounted = 92 * 24 * time.Hour

func (s *server) registerEventCounts() {
	huma.Register(s.api, get("get-event-counts", eventsPath+"/counts", EventsRead, "Get the number of accepted, duplicate and rejected events",
		"Counts the results of requests by hour, day, week or month. Use these counts to monitor ingestion: bills are computed from usage, never from these counts.\n\n"+
			"- Each API process saves its counts every five seconds. A process that is killed loses the counts that it has not saved.\n"+
			"- Counts are kept for 90 days.\n"+
			"- Requests that are refused as a whole are not counted.\n"+
			"- Rejected events are not stored. Only these counts show them."), s.eventCounts)
}

// countEvents counts the results of a request with events.
func (s *server) countEvents(ctx context.Context, result ingestResult) {
	s.metrics.events.WithLabelValues("stored").Add(float64(result.Accepted - result.Duplicates))
	s.metrics.events.WithLabelValues("duplicate").Add(float64(result.Duplicates - result.Conflicts))
	s.metrics.events.WithLabelValues("conflict").Add(float64(result.Conflicts))
	s.metrics.events.WithLabelValues("rejected").Add(float64(result.Rejected))
	tenant := principalOf(ctx).Tenant
	hour := metering.WindowOf(s.Now(), metering.Hour, tenant.Location()).Start
	s.EventCounter.Count(tenant.ID, hour, usage.EventAccepted, result.Accepted)
	s.EventCounter.Count(tenant.ID, hour, usage.EventDuplicate, result.Duplicates)
	s.EventCounter.Count(tenant.ID, hour, usage.EventConflict, result.Conflicts)
	for rule, events := range result.uncounted {
		s.EventCounter.Count(tenant.ID, hour, usage.EventUncounted(rule), events)
	}
	for _, e := range result.Errors {
		s.EventCounter.Count(tenant.ID, hour, e.Code, 1)
	}
}

type countsInput struct {
	Start       SentTime             `query:"start" doc:"Start of the range, inclusive. Default: 24 hours before 'end'. At most 92 days before 'end'"`
	End         SentTime             `query:"end" doc:"End of the range, exclusive. Default: now"`
	Granularity metering.Granularity `query:"granularity" default:"hour" doc:"Length of the windows. Days, weeks and months use the tenant's time zone. Weeks begin on Monday"`
}

type countsOutput struct{ Body eventCounts }

type eventCounts struct {
	Period      usagePeriod          `json:"period"`
	Granularity metering.Granularity `json:"granularity"`

	CountedEvents

	Windows []countedWindow `json:"windows" doc:"Windows in order of time. A window counts the hours that begin in the range. Windows without events are omitted"`
}

type countedWindow struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`

	CountedEvents
}

// CountedEvents is the number of events by result.
type CountedEvents struct {
	Accepted   int64             `json:"accepted" doc:"Accepted events, including duplicates"`
	Duplicates int64             `json:"duplicates" doc:"Accepted events with an idempotency_key that was already used. Duplicates add nothing"`
	Conflicts  int64             `json:"conflicts" doc:"Duplicates with an idempotency_key that was used for another customer or other content. The usage of these events is not counted. GET /v1/events/conflicts lists them"`
	Rejected   int64             `json:"rejected" doc:"Events that break a rule"`
	Rejections []eventRejections `json:"rejections" doc:"Rejected events by rule, most frequent first"`
	Uncounted  []eventRejections `json:"uncounted,omitempty" doc:"Accepted events that at least one meter could not count, by rule, most frequent first. Absent if there are none"`
}

type eventRejections struct {
	Code  string `json:"code" example:"timestamp_too_old"`
	Count int64  `json:"count"`
}

func (s *server) eventCounts(ctx context.Context, in *countsInput) (*countsOutput, error) {
	r, err := s.rangeBefore(Span{in.Start, in.End}, eventsWindow, 0)
	if err != nil {
		return nil, err
	}
	if r.End.Sub(r.Start) > maxCounted {
		return nil, metering.Invalid("query.start", "must be at most 92 days before the end")
	}
	tenant := principalOf(ctx).Tenant
	counts, err := s.Store.EventCounts.Within(ctx, tenant.ID, r)
	if err != nil {
		return nil, err
	}
	out := &countsOutput{eventCounts{Period: usagePeriod{r.Start.UTC(), r.End.UTC()}, Granularity: in.Granularity, Windows: []countedWindow{}}}
	for _, c := range counts {
		window := metering.WindowOf(c.Hour, in.Granularity, tenant.Location())
		if last := len(out.Body.Windows) - 1; last < 0 || !out.Body.Windows[last].Start.Equal(window.Start) {
			out.Body.Windows = append(out.Body.Windows, countedWindow{Start: window.Start.UTC(), End: window.End.UTC()})
		}
		out.Body.Windows[len(out.Body.Windows)-1].add(c)
		out.Body.add(c)
	}
	out.Body.sort()
	for i := range out.Body.Windows {
		out.Body.Windows[i].sort()
	}
	return out, nil
}

func (e *CountedEvents) add(c usage.EventCount) {
	if rule, is := c.UncountedRule(); is {
		e.Uncounted = addTo(e.Uncounted, rule, c.Events)
		return
	}
	switch c.Outcome {
	case usage.EventAccepted:
		e.Accepted += c.Events
	case usage.EventDuplicate:
		e.Duplicates += c.Events
	case usage.EventConflict:
		e.Conflicts += c.Events
	default:
		e.Rejected += c.Events
		e.Rejections = addTo(e.Rejections, c.Outcome, c.Events)
	}
}

// addTo adds events to the count of a rule.
func addTo(rules []eventRejections, code string, events int64) []eventRejections {
	i := slices.IndexFunc(rules, func(r eventRejections) bool { return r.Code == code })
	if i < 0 {
		i, rules = len(rules), append(rules, eventRejections{Code: code})
	}
	rules[i].Count += events
	return rules
}

// sort sorts the rules by their number of events, most frequent first.
func (e *CountedEvents) sort() {
	if e.Rejections == nil {
		e.Rejections = []eventRejections{}
	}
	for _, rules := range [][]eventRejections{e.Rejections, e.Uncounted} {
		sortRules(rules)
	}
}

// sortRules sorts rules by their number of events, most frequent first.
func sortRules(rules []eventRejections) {
	slices.SortFunc(rules, func(a, b eventRejections) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Code, b.Code))
	})
}
