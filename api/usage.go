package api

import (
	"context"
	"encoding/json"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

// Span is the optional time range of a query.
type Span struct {
	Start SentTime `query:"start" doc:"Start of the range, inclusive. Default: the start of the current calendar month in the tenant's time zone"`
	End   SentTime `query:"end" doc:"End of the range, exclusive. Default: the end of the current calendar month in the tenant's time zone"`
}

// ZonedSpan is a Span with defaults in the time zone of the request.
type ZonedSpan struct {
	Start SentTime `query:"start" doc:"Start of the range, inclusive. Default: the start of the current calendar month in 'timezone'"`
	End   SentTime `query:"end" doc:"End of the range, exclusive. Default: the end of the current calendar month in 'timezone'"`
}

// rangeOr returns the span as a range. If the request omits the start or the end, rangeOr uses the default.
func (s Span) rangeOr(defaults metering.Range) (metering.Range, error) {
	r := defaults
	if s.Start.sent {
		r.Start = s.Start.Time
	}
	if s.End.sent {
		r.End = s.End.Time
	}
	if r.Empty() {
		return r, metering.Invalid("query.end", "must be after start")
	}
	return r, nil
}

func (s *server) registerUsage() {
	huma.Register(s.api, filtering(get("get-usage", "/v1/usage", UsageRead, "Get a meter's usage as a time series",
		"The parameter `filter.<property>=value`, such as `filter.model=large`, selects the groups of the meter that have this value.\n\n"+
			"- A JSON number, string, true, false or null selects that value: `0` selects the number, `\"0\"` selects the string. Any other text selects the string.\n"+
			"- Several values of one property are alternatives. Filters of several properties must all match.\n"+
			"- An event without the property counts in the group null.\n"+
			"- `filter` of each group in the response contains the parameters that select the group.")), s.usage)
	huma.Register(s.api, get("get-usage-summary", "/v1/usage/summary", UsageRead, "Get the usage of every meter",
		"Returns one customer's usage of each meter between `start` and `end`."), s.usageSummary)
	huma.Register(s.api, get("get-usage-total", "/v1/usage/total", UsageRead, "Get usage as one number",
		"With `meter`, returns the usage of that meter. Without `meter`, returns the sum of all meters, even if their units differ. If several meters have usage, `meters` in the response lists them.\n\n"+
			"During its first backfill, a meter is excluded from the sum and listed in `backfilling`."), s.usageTotal)
	huma.Register(s.api, get("get-usage-comparison", "/v1/usage/comparison", UsageRead, "Compare usage with the previous month",
		"Returns the customer's usage of the current month to date and of the whole previous month, by meter."), s.usageComparison)
}

// month returns the current calendar month in the tenant's time zone.
func (s *server) month(ctx context.Context) metering.Range {
	return billing.CalendarPeriod(s.Now(), principalOf(ctx).Tenant.Location())
}

var errBackfilling = metering.Errorf(metering.CodeBackfilling, "the meter's earlier events are still being counted")

type usageMeter struct {
	ID        string `json:"id"`
	Slug      string `json:"slug"`
	EventType string `json:"event_type"`
}

type usagePeriod struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

type usageWindow struct {
	WindowStart time.Time        `json:"window_start"`
	WindowEnd   time.Time        `json:"window_end"`
	Value       metering.Decimal `json:"value"`
	LateValue   metering.Decimal `json:"late_value" doc:"Usage that arrived after the window became final. Add late_value to 'value' for the whole usage"`
	IsFinal     bool             `json:"is_final" doc:"Whether 'value' can no longer change, because the billing period of the window is closed"`
}

type usageGroup struct {
	GroupKey json.RawMessage  `json:"group_key" doc:"Value of each property. Empty for a meter without group_by"`
	Windows  []usageWindow    `json:"windows" doc:"Windows in order of time. Windows without usage are omitted"`
	Subtotal metering.Decimal `json:"subtotal" doc:"Usage of the group in the whole range, on every page"`
	Filter   string           `json:"filter" example:"filter.model=large" doc:"Filters that select this group. These filters replace the request's filters of the same properties. Empty if no filter is needed"`
}

type usageResult struct {
	Meter         usageMeter           `json:"meter"`
	CustomerID    string               `json:"customer_id" doc:"The customer's external ID"`
	Period        usagePeriod          `json:"period"`
	Granularity   metering.Granularity `json:"granularity"`
	Groups        []usageGroup         `json:"groups" doc:"Groups with windows on this page"`
	Total         metering.Decimal     `json:"total" doc:"Usage of all groups in the whole range, on every page"`
	HasMore       bool                 `json:"has_more"`
	NextPageToken *string              `json:"next_page_token"`

	FilterGaps
}

// FilterGaps shows usage that group filters may have missed.
type FilterGaps struct {
	OtherTotal *metering.Decimal `json:"other_total,omitempty" doc:"Usage in the group '$other'. 'total' excludes this usage, although it can match the filters. '$other' contains the groups beyond the first 10,000 and group keys above 1 KB. Absent without a filter or without such usage"`
	Warnings   []string          `json:"warnings,omitempty" doc:"Warnings about group filters that may miss usage"`
}

type usageInput struct {
	Meter       string               `query:"meter" required:"true" maxLength:"64" doc:"The meter's slug"`
	Customer    string               `query:"customer" required:"true" maxLength:"255" doc:"The customer's external ID"`
	Granularity metering.Granularity `query:"granularity" default:"hour" doc:"Length of the windows. Windows use 'timezone'. Weeks begin on Monday"`
	Timezone    string               `query:"timezone" maxLength:"64" doc:"IANA time zone of the windows and of the default range. Windows must start at full hours of the tenant's time zone. At most 10,000 windows if the time zone differs from the tenant's. Default: the tenant's time zone" example:"Europe/Berlin"`
	GroupBy     []string             `query:"group_by,explode" maxItems:"5" doc:"Properties to group by, comma-separated or as repeated parameters. A name that contains commas needs its own parameter. Default: all properties of the meter. Empty: one group" example:"[\"model\"]"`
	ZonedSpan
	PageSize  int    `query:"page_size" minimum:"1" maximum:"10000" default:"50" doc:"Maximum number of windows per page. A page also ends at 1 MiB"`
	PageToken string `query:"page_token" maxLength:"2048" doc:"next_page_token of the previous page"`
}

type usageOutput struct{ Body usageResult }

// usageCursor is the position at which a page begins. It contains the range, because the default range can
// change between two pages.
type usageCursor struct {
	Range metering.Range
	After *usage.WindowCursor
}

func (s *server) usage(ctx context.Context, in *usageInput) (*usageOutput, error) {
	m, c, err := s.meterAndCustomer(ctx, in.Meter, in.Customer)
	if err != nil {
		return nil, err
	}
	if m.Version.Status == metering.Backfilling {
		return nil, errBackfilling
	}
	groups, err := groupFilters(ctx, m)
	if err != nil {
		return nil, err
	}
	by, err := readGroupBy(ctx, m)
	if err != nil {
		return nil, err
	}
	zone, month, err := s.windowZone(ctx, in.Timezone)
	if err != nil {
		return nil, err
	}
	var at usageCursor
	if at.Range, err = Span(in.ZonedSpan).rangeOr(month); err != nil {
		return nil, err
	}
	if err := s.readPageToken(ctx, in.PageToken, &at); err != nil {
		return nil, err
	}
	tenant := principalOf(ctx).Tenant.ID
	query := usage.WindowQuery{
		Zone: zone, Customer: c.ID, Meter: m, Range: at.Range, Granularity: in.Granularity, Groups: groups, GroupBy: by,
		After: at.After, Limit: in.PageSize,
	}
	isLong, err := s.Store.Usage.IsLong(ctx, tenant, query)
	if err != nil {
		return nil, err
	}
	if err := exchangeOf(ctx).beginSeries(ctx, s.heavy, tenant, isLong); err != nil {
		return nil, err
	}
	page, err := s.Store.Usage.Windows(ctx, tenant, query)
	if err != nil {
		return nil, err
	}
	shown, err := showGroups(page)
	if err != nil {
		return nil, err
	}
	result := usageResult{
		Meter: usageMeter{m.ID.String(), m.Slug, m.EventType}, CustomerID: c.ExternalID,
		Period: usagePeriod{at.Range.Start, at.Range.End}, Granularity: in.Granularity,
		Groups: shown, Total: page.Total, HasMore: page.More, FilterGaps: showGaps(page.FilterGaps),
	}
	if page.More {
		last := page.Windows[len(page.Windows)-1]
		token := s.pageToken(ctx, usageCursor{at.Range, &usage.WindowCursor{GroupID: last.GroupID, Start: last.Start}})
		result.NextPageToken = &token
	}
	return &usageOutput{result}, nil
}

// windowZone returns the time zone of a request's windows, and the current month in that time zone. If the request
// names no time zone, it returns nil and the current month in the tenant's time zone.
func (s *server) windowZone(ctx context.Context, name string) (*time.Location, metering.Range, error) {
	if name == "" {
		return nil, s.month(ctx), nil
	}
	zone, err := metering.LoadLocation(name)
	if err != nil {
		return nil, metering.Range{}, metering.Invalid("query.timezone", "must be an IANA time zone name, such as Europe/Berlin").Because(err)
	}
	return zone, billing.CalendarPeriod(s.Now(), zone), nil
}

func (s *server) meterAndCustomer(ctx context.Context, slug, externalID string) (metering.Meter, metering.Customer, error) {
	m, err := s.meter(ctx, slug)
	if err != nil {
		return metering.Meter{}, metering.Customer{}, err
	}
	c, err := s.customer(ctx, externalID)
	return m, c, err
}

type summaryInput struct {
	Customer string `query:"customer" required:"true" maxLength:"255" doc:"The customer's external ID"`
	Span
}

type summaryItem struct {
	MeterID    string           `json:"meter_id"`
	MeterSlug  string           `json:"meter_slug"`
	TotalUsage metering.Decimal `json:"total_usage"`

	Backfilling bool `json:"backfilling,omitempty" doc:"Whether the meter's earlier events are still being counted. If true, total_usage is 0"`
}

type summaryOutput struct{ Body []summaryItem }

func (s *server) usageSummary(ctx context.Context, in *summaryInput) (*summaryOutput, error) {
	c, err := s.customer(ctx, in.Customer)
	if err != nil {
		return nil, err
	}
	span, err := in.Span.rangeOr(s.month(ctx))
	if err != nil {
		return nil, err
	}
	totals, err := s.Store.Usage.MeterTotals(ctx, principalOf(ctx).Tenant.ID, c.ID, span)
	if err != nil {
		return nil, err
	}
	out := &summaryOutput{[]summaryItem{}}
	for _, t := range totals {
		item := summaryItem{MeterID: t.Meter.ID.String(), MeterSlug: t.Meter.Slug, Backfilling: t.Backfilling}
		if !t.Backfilling {
			item.TotalUsage = t.Usage
		}
		out.Body = append(out.Body, item)
	}
	return out, nil
}

// meterTotal returns one meter's usage, or errBackfilling during the first backfill of this meter. Backfills of other
// meters have no effect.
func (s *server) meterTotal(ctx context.Context, c metering.Customer, slug string, span metering.Range) (metering.Decimal, error) {
	totals, err := s.Store.Usage.MeterTotals(ctx, principalOf(ctx).Tenant.ID, c.ID, span)
	if err != nil {
		return metering.Decimal{}, err
	}
	for _, t := range totals {
		if t.Meter.Slug != slug {
			continue
		}
		if t.Backfilling {
			return metering.Decimal{}, errBackfilling
		}
		return t.Usage, nil
	}
	return metering.Decimal{}, metering.Errorf(metering.CodeNotFound, "there is no meter with this slug")
}

type totalInput struct {
	Customer string `query:"customer" required:"true" maxLength:"255" doc:"The customer's external ID"`
	Meter    string `query:"meter" maxLength:"64" doc:"Slug of a meter. Default: all meters"`
	Span
}

type totalOutput struct {
	Body struct {
		Total metering.Decimal `json:"total"`

		Meters      []string `json:"meters,omitempty" doc:"Slugs of the meters in the sum, if there are several. The units of these meters can differ"`
		Backfilling []string `json:"backfilling,omitempty" doc:"Slugs of meters that are excluded during their first backfill"`
	}
}

func (s *server) usageTotal(ctx context.Context, in *totalInput) (*totalOutput, error) {
	c, err := s.customer(ctx, in.Customer)
	if err != nil {
		return nil, err
	}
	span, err := in.Span.rangeOr(s.month(ctx))
	if err != nil {
		return nil, err
	}
	out := new(totalOutput)
	if in.Meter != "" {
		out.Body.Total, err = s.meterTotal(ctx, c, in.Meter, span)
		return out, err
	}
	totals, err := s.Store.Usage.MeterTotals(ctx, principalOf(ctx).Tenant.ID, c.ID, span)
	if err != nil {
		return nil, err
	}
	for _, t := range totals {
		if t.Backfilling {
			out.Body.Backfilling = append(out.Body.Backfilling, t.Meter.Slug)
			continue
		}
		if !t.Usage.IsZero() {
			out.Body.Total, out.Body.Meters = out.Body.Total.Add(t.Usage), append(out.Body.Meters, t.Meter.Slug)
		}
	}
	if len(out.Body.Meters) == 1 {
		out.Body.Meters = nil
	}
	return out, nil
}

type comparisonInput struct {
	Customer string `query:"customer" required:"true" maxLength:"255" doc:"The customer's external ID"`
	Meter    string `query:"meter" required:"true" maxLength:"64" doc:"The meter's slug"`
}

type comparisonOutput struct {
	Body struct {
		CurrentTotal  metering.Decimal `json:"current_total" doc:"Usage of the current calendar month to date"`
		PreviousTotal metering.Decimal `json:"previous_total" doc:"Usage of the whole previous calendar month"`
		Delta         metering.Decimal `json:"delta"`
		PercentChange metering.Decimal `json:"percent_change" doc:"'delta' as a percentage of previous_total, with two decimals. If previous_total is negative, percent_change has the opposite sign of 'delta'. If previous_total is 0, percent_change is 100 or -100 with the sign of 'delta', or 0 if current_total is 0 too"`
	}
}

// usageComparison compares a meter's usage in the current month with the previous month. It reads the current
// month to its end, because accepted events can have timestamps in the near future.
func (s *server) usageComparison(ctx context.Context, in *comparisonInput) (*comparisonOutput, error) {
	c, err := s.customer(ctx, in.Customer)
	if err != nil {
		return nil, err
	}
	month := s.month(ctx)
	before := billing.CalendarPeriod(month.Start.Add(-time.Microsecond), principalOf(ctx).Tenant.Location())
	current, err := s.meterTotal(ctx, c, in.Meter, month)
	if err != nil {
		return nil, err
	}
	previous, err := s.meterTotal(ctx, c, in.Meter, before)
	if err != nil {
		return nil, err
	}
	compared := metering.Compare(current, previous)
	out := new(comparisonOutput)
	out.Body.CurrentTotal, out.Body.PreviousTotal = compared.Current, compared.Previous
	out.Body.Delta, out.Body.PercentChange = compared.Delta, compared.PercentChange
	return out, nil
}
