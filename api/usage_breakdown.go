package api

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

const breakdownPath = "/v1/usage/breakdown"

// Names of dimensions in the query parameter `by`. propertyPrefix selects a property that has the same name
// as another dimension.
const (
	byCustomer     = "customer"
	byPlan         = "plan"
	propertyPrefix = "property."
)

// Orders of the rows of a breakdown.
const (
	orderValue = "value"
	orderKey   = "key"
)

type breakdownInput struct {
	Meter       string               `query:"meter" required:"true" maxLength:"64" doc:"The meter's slug"`
	By          []string             `query:"by,explode" maxItems:"7" doc:"Dimensions of the rows: 'customer', 'plan', or a property that the meter groups by. Comma-separated or as repeated parameters. A name that contains commas needs its own parameter. The prefix 'property.' selects a property with the name of another dimension: 'property.customer'. Default: none" example:"[\"customer\",\"model\"]"`
	Granularity metering.Granularity `query:"granularity" doc:"Length of the windows. Windows use 'timezone'. Weeks begin on Monday. At most 10,000 windows. Default: the whole range is one window"`
	Timezone    string               `query:"timezone" maxLength:"64" doc:"IANA time zone of the windows and of the default range. Windows must start at full hours of the tenant's time zone. Without 'granularity', only the default range uses 'timezone'. Default: the tenant's time zone" example:"Europe/Berlin"`
	ZonedSpan
	Limit     int    `query:"limit" minimum:"1" maximum:"10000" doc:"Returns this number of rows with the highest values, and the sum of all rows beyond 'limit' as the last row. Default: all rows"`
	Order     string `query:"order" enum:"value,key" doc:"Order of the rows. Default: 'value' if 'limit' is set or 'granularity' is not, otherwise 'key'. With 'limit', the order must be 'value'.\n- 'value': highest value first.\n- 'key': by customer in order of creation, then by plan and property values in a fixed order, then by window."`
	Format    string `query:"format" enum:"json,csv" default:"json"`
	PageSize  int    `query:"page_size" minimum:"1" maximum:"10000" default:"50" doc:"Maximum number of rows per page. A page also ends at 1 MiB"`
	PageToken string `query:"page_token" maxLength:"2048" doc:"next_page_token of the previous page"`
}

type breakdownRow struct {
	Customer    *string          `json:"customer,omitempty" doc:"The customer's external ID. Present with 'by=customer'" example:"acme"`
	Plan        *string          `json:"plan,omitempty" doc:"Slug of the plan that charges the billing period of the usage: the plan that was assigned at the start of that period. If no billing period is stored for that time, the billing period is the calendar month. An hour in which the plan changes belongs to the plan at the start of the hour. Empty without a plan. Present with 'by=plan'" example:"pro"`
	GroupKey    json.RawMessage  `json:"group_key,omitempty" doc:"Value of each property in 'by'. Present if 'by' contains a property. '{\"$other\": true}': the values are unknown"`
	WindowStart *time.Time       `json:"window_start,omitempty" doc:"Start of the window, or of the range if the range starts later. Present with 'granularity'"`
	Value       metering.Decimal `json:"value" doc:"Usage, including late usage"`
	Other       bool             `json:"other,omitempty" doc:"Whether the row is the sum of all rows beyond 'limit'. Such a row is the last row of the last page"`
}

// breakdownResult is a page of a breakdown with the total of all pages.
type breakdownResult struct {
	List[breakdownRow]

	Period usagePeriod      `json:"period"`
	Total  metering.Decimal `json:"total" doc:"Usage of all customers in the range that matches the filters: the sum of the rows of all pages"`

	FilterGaps
}

// breakdownCursor is the position at which a page begins. It contains the range, because the default range
// can change between two pages.
type breakdownCursor struct {
	Range metering.Range
	After *usage.BreakdownPlace
	Rows  int              // number of rows of the previous pages
	Sum   metering.Decimal // sum of the values on the previous pages
}

func (s *server) registerBreakdown() {
	huma.Register(s.api, heavy(filtering(get("get-usage-breakdown", breakdownPath, UsageRead, "Get a meter's usage by customer, plan and property",
		"Returns one row for each combination of the dimensions in `by` and each window. Combinations without usage are omitted.\n\n"+
			"- The rows of all pages add up to `total`. With `limit`, the last row contains the sum of all rows beyond the limit.\n"+
			"- Each page shows the usage at the time of its request. Request a range that has ended if the pages must add up.\n"+
			"- `filter.<property>=value` selects groups, as in a time series.\n"+
			"- In CSV, the dimensions are columns. The `Link` header contains the next page."))), s.usageBreakdown)
	s.describeFile(breakdownPath, "One page of rows", map[string]*huma.Schema{
		"application/json": s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[breakdownResult](), true, ""),
		"text/csv":         {Type: huma.TypeString},
	})
}

func (s *server) usageBreakdown(ctx context.Context, in *breakdownInput) (*huma.StreamResponse, error) {
	m, err := s.meter(ctx, in.Meter)
	if err != nil {
		return nil, err
	}
	if m.Version.Status == metering.Backfilling {
		return nil, errBackfilling
	}
	zone, month, err := s.windowZone(ctx, in.Timezone)
	if err != nil {
		return nil, err
	}
	query := usage.BreakdownQuery{Meter: m, Granularity: in.Granularity, Zone: zone, Timezone: principalOf(ctx).Tenant.Location(), Limit: in.PageSize}
	if err := readDimensions(ctx, &query); err != nil {
		return nil, err
	}
	if query.Groups, err = groupFilters(ctx, m); err != nil {
		return nil, err
	}
	if query.ByValue, err = in.byValue(); err != nil {
		return nil, err
	}
	var at breakdownCursor
	if at.Range, err = Span(in.ZonedSpan).rangeOr(month); err != nil {
		return nil, err
	}
	if err := s.readPageToken(ctx, in.PageToken, &at); err != nil {
		return nil, err
	}
	if in.Limit > 0 {
		query.Limit = min(query.Limit, in.Limit-at.Rows)
	}
	query.Range, query.After = at.Range, at.After
	page, err := s.Store.Usage.Breakdown(ctx, principalOf(ctx).Tenant.ID, query)
	if err != nil {
		return nil, err
	}
	result := s.showBreakdown(ctx, in, query, at, page)
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		write := writeBreakdownJSON
		if in.Format == "csv" {
			write = writeBreakdownCSV
		}
		if err := write(ctx, hc, query, in.Limit > 0, result); err != nil {
			exchangeOf(ctx).err = fmt.Errorf("breakdown: %w", err)
			panic(http.ErrAbortHandler)
		}
	}}, nil
}

// byValue reports whether the rows are sorted by value.
func (in *breakdownInput) byValue() (bool, error) {
	switch in.Order {
	case orderValue:
		return true, nil
	case orderKey:
		if in.Limit > 0 {
			return false, metering.Invalid("query.order", "must be value if limit is set, because limit selects the rows with the highest values")
		}
		return false, nil
	}
	return in.Limit > 0 || in.Granularity == "", nil
}

// readDimensions reads the query parameter `by`.
func readDimensions(ctx context.Context, query *usage.BreakdownQuery) error {
	known := append([]string{byCustomer, byPlan}, query.Meter.Version.GroupBy...)
	for _, name := range query.Meter.Version.GroupBy {
		known = append(known, propertyPrefix+name)
	}
	for _, name := range splitNames(exchangeOf(ctx).request.URL.Query()["by"], known) {
		property, prefixed := strings.CutPrefix(name, propertyPrefix)
		isProperty := func(name string) bool { return slices.Contains(query.Meter.Version.GroupBy, name) }
		switch {
		case name == byCustomer:
			query.ByCustomer = true
			continue
		case name == byPlan:
			query.ByPlan = true
			continue
		case prefixed && isProperty(property):
		case isProperty(name):
			property = name
		default:
			return metering.Invalid("query.by", "must be customer, plan, or properties that the meter groups by; %s", availableProperties(query.Meter))
		}
		if !slices.Contains(query.Properties, property) {
			query.Properties = append(query.Properties, property)
		}
	}
	return nil
}

// showBreakdown returns a page. If rows remain beyond the query's limit, the last page ends with a row that
// contains their sum.
func (s *server) showBreakdown(ctx context.Context, in *breakdownInput, query usage.BreakdownQuery, at breakdownCursor, page usage.Breakdown) breakdownResult {
	result := breakdownResult{
		List:   List[breakdownRow]{Data: []breakdownRow{}, HasMore: page.More},
		Period: usagePeriod{at.Range.Start, at.Range.End}, Total: page.Total, FilterGaps: showGaps(page.FilterGaps),
	}
	for _, row := range page.Items {
		result.Data = append(result.Data, showBreakdownRow(query, row))
		at.Sum = at.Sum.Add(row.Value)
	}
	at.Rows += len(page.Items)
	if in.Limit > 0 && at.Rows >= in.Limit && page.More {
		result.HasMore = false
		result.Data = append(result.Data, breakdownRow{Value: page.Total.Sub(at.Sum), Other: true})
	}
	if result.HasMore {
		at.After = &page.Items[len(page.Items)-1].BreakdownPlace
		result.NextPageToken = new(s.pageToken(ctx, at))
	}
	return result
}

func showBreakdownRow(query usage.BreakdownQuery, row usage.BreakdownRow) breakdownRow {
	shown := breakdownRow{GroupKey: row.GroupKey, Value: row.Value}
	if query.ByCustomer {
		shown.Customer = &row.ExternalID
	}
	if query.ByPlan {
		shown.Plan = &row.PlanSlug
	}
	if query.Granularity != "" {
		shown.WindowStart = new(row.Start.UTC())
	}
	return shown
}

func writeBreakdownJSON(_ context.Context, hc huma.Context, _ usage.BreakdownQuery, _ bool, result breakdownResult) error {
	hc.SetHeader("Content-Type", "application/json")
	hc.SetStatus(http.StatusOK)
	encoder := json.NewEncoder(hc.BodyWriter())
	encoder.SetEscapeHTML(false)
	return encoder.Encode(result)
}

func writeBreakdownCSV(ctx context.Context, hc huma.Context, query usage.BreakdownQuery, limited bool, result breakdownResult) error {
	text, err := breakdownCSV(query, limited, result.Data)
	if err != nil {
		return err
	}
	beginFile(ctx, hc, "text/csv; charset=utf-8", "usage-breakdown.csv", result.NextPageToken)
	_, err = hc.BodyWriter().Write(text)
	return err
}

// breakdownCSV returns the rows as CSV, with a column for each dimension.
func breakdownCSV(query usage.BreakdownQuery, limited bool, rows []breakdownRow) ([]byte, error) {
	var header []string
	column := func(is bool, name string) {
		if is {
			header = append(header, name)
		}
	}
	column(query.ByCustomer, byCustomer)
	column(query.ByPlan, byPlan)
	for _, property := range query.Properties {
		column(true, propertyColumn(property))
	}
	column(query.Granularity != "", "window_start")
	column(true, "value")
	column(limited, "other")
	var text bytes.Buffer
	out := csv.NewWriter(&text)
	_ = out.Write(header) // a buffer returns no errors
	for _, row := range rows {
		cells, err := row.cells(query)
		if err != nil {
			return nil, err
		}
		if limited {
			cells = append(cells, fmt.Sprint(row.Other))
		}
		_ = out.Write(cells)
	}
	out.Flush()
	return text.Bytes(), out.Error()
}

// propertyColumn returns the header of a property's column. It adds propertyPrefix to a name that equals
// another column or begins with propertyPrefix, so that headers are unique.
func propertyColumn(property string) string {
	if slices.Contains([]string{byCustomer, byPlan, "window_start", "value", "other"}, property) || strings.HasPrefix(property, propertyPrefix) {
		property = propertyPrefix + property
	}
	return textCell(property)
}

func (row breakdownRow) cells(query usage.BreakdownQuery) (cells []string, err error) {
	dimension := func(is bool, text *string) {
		switch {
		case !is:
		case text == nil: // in the row with the sum of the rows beyond the limit
			cells = append(cells, "")
		default:
			cells = append(cells, textCell(*text))
		}
	}
	dimension(query.ByCustomer, row.Customer)
	dimension(query.ByPlan, row.Plan)
	values := make(map[string]json.RawMessage)
	if len(row.GroupKey) > 0 {
		if err := json.Unmarshal(row.GroupKey, &values); err != nil {
			return nil, fmt.Errorf("group key: %w", err)
		}
	}
	for _, property := range query.Properties {
		text, err := metering.GroupValueText(values[property])
		if err != nil {
			return nil, fmt.Errorf("group key: %w", err)
		}
		if _, unknown := values[metering.OtherProperty]; unknown {
			text = metering.OtherProperty
		} else if text == metering.OtherProperty {
			text = fmt.Sprintf("%q", text)
		}
		cells = append(cells, textCell(text))
	}
	if query.Granularity != "" {
		start := ""
		if row.WindowStart != nil {
			start = row.WindowStart.Format(time.RFC3339Nano)
		}
		cells = append(cells, start)
	}
	return append(cells, row.Value.String()), nil
}
