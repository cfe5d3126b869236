package api

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/db/usage"
	"github.com/odometer-metering/odometer/metering"
)

const (
	exportPath   = "/v1/usage/export"
	exportAll    = "/v1/events/export"
	exportWindow = 30 * 24 * time.Hour
	exportLead   = time.Hour // after now, because clocks of clients can be ahead
	firstRows    = 100       // rows in the first read; the database connection is released while rows are written
	mostRows     = 2_000
	maxExports   = 8 // in progress in this process, some three megabytes each; one tenant gets at most half of them
	exportRetry  = 10 * time.Second
)

type exportInput struct {
	Customer string `query:"customer" required:"true" maxLength:"255" doc:"The customer's external ID"`
	ExportedRange
}

// ExportedRange selects the events and the format of an export.
type ExportedRange struct {
	Format    string   `query:"format" enum:"json,jsonl,csv" default:"json" doc:"Format of the response:\n- 'json': one page of a list.\n- 'jsonl': one JSON object per line.\n- 'csv': a file for a spreadsheet."`
	Start     SentTime `query:"start" doc:"Start of the range, inclusive. Default: 30 days before 'end'"`
	End       SentTime `query:"end" doc:"End of the range, exclusive. Default: one hour from now, the latest time that an event can have"`
	PageSize  int      `query:"page_size" minimum:"1" maximum:"1000000" default:"50000" doc:"Number of events per page. Events that arrive while the page is read are added to the page"`
	PageToken string   `query:"page_token" maxLength:"2048" doc:"next_page_token of the previous page"`
}

type exportCursor struct {
	Range metering.Range
	After *usage.EventCursor
}

// ExportedEvent is an event with the fields of its request.
type ExportedEvent struct {
	ID             string           `json:"id"`
	EventType      string           `json:"event_type"`
	CustomerID     string           `json:"customer_id" doc:"The customer's external ID"`
	Timestamp      time.Time        `json:"timestamp"`
	Value          metering.Decimal `json:"value"`
	IdempotencyKey *string          `json:"idempotency_key"`
	Properties     json.RawMessage  `json:"properties"`
}

func showEvent(e metering.Event) ExportedEvent {
	shown := ExportedEvent{
		ID: e.ID.String(), EventType: e.EventType, CustomerID: e.ExternalID, Timestamp: e.At.UTC(),
		Value: e.Value, Properties: e.Properties,
	}
	if e.IdempotencyKey != "" {
		shown.IdempotencyKey = &e.IdempotencyKey
	}
	if len(shown.Properties) == 0 {
		shown.Properties = json.RawMessage("{}")
	}
	return shown
}

// export is one page of events while it is read and sent.
type export struct {
	server   *server
	file     string              // name without the extension
	customer metering.CustomerID // WholeTenant: all customers
	at       exportCursor
	chunk    int                // maximum number of rows of the next read
	next     *usage.EventCursor // last event of the page; nil: the page ends with the range
	first    []metering.Event   // read before the response begins, so that a failure is still reported as a problem
}

const aboutExports = "The `Link` header of a page in JSON Lines or CSV contains the next page.\n\n" +
	"- In CSV, a `'` is placed before text that a spreadsheet would read as a formula.\n" +
	"- Every export is recorded in the audit log."

func (s *server) registerExports() {
	huma.Register(s.api, get("export-usage", exportPath, EventsRead, "Export a customer's events",
		"Returns the events in pages, oldest event first. "+aboutExports), s.exportUsage)
	huma.Register(s.api, get("export-events", exportAll, EventsRead, "Export the events of all customers",
		"Returns the events in pages, one customer after the other in order of creation, oldest event of each customer first. "+aboutExports), s.exportEvents)
	s.describeExports()
}

func (s *server) exportUsage(ctx context.Context, in *exportInput) (*huma.StreamResponse, error) {
	c, err := s.customer(ctx, in.Customer)
	if err != nil {
		return nil, err
	}
	return s.exportOf(ctx, "usage-export", c.ID, c.ID.String(), in.ExportedRange)
}

// exportEvents exports the events of all customers, one customer after another.
func (s *server) exportEvents(ctx context.Context, in *ExportedRange) (*huma.StreamResponse, error) {
	return s.exportOf(ctx, "events-export", metering.WholeTenant, principalOf(ctx).Tenant.ID.String(), *in)
}

// exportOf exports the events of a customer, or of all customers if customer is metering.WholeTenant. file is the
// file name without the extension. resource is the resource in the audit log.
func (s *server) exportOf(ctx context.Context, file string, customer metering.CustomerID, resource string, in ExportedRange) (_ *huma.StreamResponse, err error) {
	tenant := principalOf(ctx).Tenant.ID
	if err := s.beginExport(ctx, tenant); err != nil {
		return nil, err
	}
	e := &export{server: s, file: file, customer: customer, chunk: min(in.PageSize, firstRows)}
	if e.at.Range, err = s.rangeBefore(Span{in.Start, in.End}, exportWindow, exportLead); err != nil {
		return nil, err
	}
	if err := s.readPageToken(ctx, in.PageToken, &e.at); err != nil {
		return nil, err
	}
	if e.next, err = s.Store.Events.Boundary(ctx, tenant, customer, e.at.Range, e.at.After, in.PageSize); err != nil {
		return nil, err
	}
	if e.first, err = e.read(ctx); err != nil {
		return nil, err
	}
	what := map[string]any{"start": e.at.Range.Start.UTC(), "end": e.at.Range.End.UTC(), "format": in.Format}
	if err := s.auditAsked(ctx, "usage.export", resource, what); err != nil {
		return nil, err
	}
	write := map[string]writeExport{"json": e.writeJSON, "jsonl": e.writeLines, "csv": e.writeCSV}[in.Format]
	return &huma.StreamResponse{Body: func(hc huma.Context) { stream(ctx, hc, write) }}, nil
}

// rangeBefore completes a span. The default end is now plus lead. The default start is the end minus window, or now
// minus window if the end is absent too.
func (s *server) rangeBefore(span Span, window, lead time.Duration) (metering.Range, error) {
	now := metering.Instant(s.Now())
	whole := metering.Range{Start: now.Add(-window), End: now.Add(lead)}
	if span.End.sent {
		whole.Start = span.End.Add(-window)
	}
	if whole.Start.Before(time.Time{}) { // before the year 1
		whole.Start = time.Time{}
	}
	return span.rangeOr(whole)
}

// read returns the next rows of the page. The page ends at the event e.next, not after a number of rows. Events
// that arrive while the page is read are therefore added to the page, and no event falls between two pages.
func (e *export) read(ctx context.Context) ([]metering.Event, error) {
	events, err := e.server.Store.Events.Page(ctx, principalOf(ctx).Tenant.ID, e.customer, e.at.Range, e.at.After, e.next, e.chunk)
	if err != nil {
		return nil, err
	}
	e.chunk = min(2*len(events), mostRows) // fewer rows than requested were read if the rows are large
	if len(events) > 0 {
		last := events[len(events)-1]
		e.at.After = &usage.EventCursor{At: last.At, ID: last.ID, Customer: last.CustomerID}
	}
	return events, nil
}

// each calls write for every event of the page.
func (e *export) each(ctx context.Context, flush func() error, write func(ExportedEvent) error) error {
	for events := e.first; len(events) > 0; {
		for _, event := range events {
			if err := write(showEvent(event)); err != nil {
				return fmt.Errorf("write event: %w", err)
			}
		}
		if err := flush(); err != nil {
			return fmt.Errorf("write events: %w", err)
		}
		var err error
		if events, err = e.read(ctx); err != nil {
			return err
		}
	}
	return nil
}

// writeExport writes an export and calls flush from time to time.
type writeExport func(ctx context.Context, hc huma.Context, out *bufio.Writer, flush func() error) error

// stream writes an export. After the response has begun, a failure can be reported only by closing the
// connection.
func stream(ctx context.Context, hc huma.Context, write writeExport) {
	x := exchangeOf(ctx)
	x.writer.streams = true
	buffered := bufio.NewWriterSize(hc.BodyWriter(), 64<<10)
	flush := func() error {
		if err := buffered.Flush(); err != nil {
			return err
		}
		return x.writer.flush()
	}
	if err := write(ctx, hc, buffered, flush); err != nil {
		x.err = fmt.Errorf("export: %w", err)
		panic(http.ErrAbortHandler)
	}
}

// beginExport reserves one export of the tenant's share of concurrent exports until the request ends. It returns an
// error if the share is used up.
func (s *server) beginExport(ctx context.Context, tenant metering.TenantID) error {
	if !s.exports.Take(tenant, 1) {
		err := metering.Errorf(metering.CodeRateLimited, "the tenant has too many exports in progress; try again when one has ended")
		err.RetryAfter = exportRetry
		return err
	}
	exchangeOf(ctx).atEnd(func() { s.exports.Give(tenant, 1) })
	return nil
}

func (e *export) token(ctx context.Context) *string {
	if e.next == nil {
		return nil
	}
	token := e.server.pageToken(ctx, exportCursor{e.at.Range, e.next})
	return &token
}

func (e *export) writeJSON(ctx context.Context, hc huma.Context, out *bufio.Writer, flush func() error) error {
	hc.SetHeader("Content-Type", "application/json")
	hc.SetStatus(http.StatusOK)
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	separator := `{"data":[`
	err := e.each(ctx, flush, func(event ExportedEvent) error {
		_, err := io.WriteString(out, separator)
		separator = ","
		if err != nil {
			return err
		}
		return encoder.Encode(event)
	})
	if err != nil {
		return err
	}
	if separator != "," {
		_, _ = io.WriteString(out, separator) // bufio returns the error in Flush
	}
	token, err := json.Marshal(e.token(ctx))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(out, "],\"has_more\":%t,\"next_page_token\":%s}\n", e.next != nil, token)
	return flush()
}

// beginFile starts a response with a file. The Link header has the URL of the next page.
func beginFile(ctx context.Context, hc huma.Context, mediaType, name string, next *string) {
	hc.SetHeader("Content-Type", mediaType)
	hc.SetHeader("Content-Disposition", fmt.Sprintf("attachment; filename=%q", name))
	if next != nil {
		hc.SetHeader("Link", fmt.Sprintf("<%s>; rel=\"next\"", nextPage(ctx, *next)))
	}
	hc.SetStatus(http.StatusOK)
}

func (e *export) writeLines(ctx context.Context, hc huma.Context, out *bufio.Writer, flush func() error) error {
	beginFile(ctx, hc, linesMedia, e.file+".jsonl", e.token(ctx))
	encoder := json.NewEncoder(out)
	encoder.SetEscapeHTML(false)
	if err := e.each(ctx, flush, func(event ExportedEvent) error { return encoder.Encode(event) }); err != nil {
		return err
	}
	return flush()
}

// linesMedia is the media type of JSON Lines. It does not begin with application/json, so the response writer
// does not convert its decimals to strings.
const linesMedia = "application/x-jsonlines"

func (e *export) writeCSV(ctx context.Context, hc huma.Context, out *bufio.Writer, flush func() error) error {
	beginFile(ctx, hc, "text/csv; charset=utf-8", e.file+".csv", e.token(ctx))
	rows := csv.NewWriter(out)
	flushRows := func() error {
		if rows.Flush(); rows.Error() != nil {
			return rows.Error()
		}
		return flush()
	}
	header := []string{"id", "event_type", "customer_id", "timestamp", "value", "idempotency_key", "properties"}
	if err := rows.Write(header); err != nil {
		return err
	}
	err := e.each(ctx, flushRows, func(event ExportedEvent) error {
		key := ""
		if event.IdempotencyKey != nil {
			key = *event.IdempotencyKey
		}
		return rows.Write([]string{
			event.ID, textCell(event.EventType), textCell(event.CustomerID), event.Timestamp.Format(time.RFC3339Nano),
			event.Value.String(), textCell(key), textCell(string(event.Properties)),
		})
	})
	if err != nil {
		return err
	}
	return flushRows()
}

// textCell prevents spreadsheets from running a text as a formula. It inserts a ' before a character that can
// begin a formula. It does so at the beginning of the text, and after each character that a spreadsheet can read
// as a separator (https://owasp.org/www-community/attacks/CSV_Injection). A ' at such a position also gets a ', so
// that removing the inserted characters restores the text.
func textCell(text string) string {
	var cell strings.Builder
	begins := true
	for _, r := range text {
		if begins && strings.ContainsRune("'=+-@＝＋－＠\t\r\n", r) {
			cell.WriteByte('\'')
		}
		cell.WriteRune(r)
		begins = strings.ContainsRune(";|\t\r\n", r)
	}
	return cell.String()
}

// nextPage returns the path and query of the current request with another page token.
func nextPage(ctx context.Context, token string) string {
	u := *exchangeOf(ctx).request.URL
	query := u.Query()
	query.Set("page_token", token)
	u.RawQuery = query.Encode()
	return u.RequestURI()
}

// describeExports documents the responses of the export operations.
func (s *server) describeExports() {
	schemas := s.api.OpenAPI().Components.Schemas
	for _, path := range []string{exportPath, exportAll} {
		s.describeFile(path, "One page of events", map[string]*huma.Schema{
			"application/json": schemas.Schema(reflect.TypeFor[List[ExportedEvent]](), true, ""),
			linesMedia:         {Type: huma.TypeString},
			"text/csv":         {Type: huma.TypeString},
		})
	}
}

// describeFile documents a response that is a file in several formats.
func (s *server) describeFile(path, description string, formats map[string]*huma.Schema) {
	response := &huma.Response{
		Description: description,
		Headers: map[string]*huma.Param{
			"Link":                {Description: "Link to the next page of a file", Schema: &huma.Schema{Type: huma.TypeString}},
			"Content-Disposition": {Description: "Name of the file", Schema: &huma.Schema{Type: huma.TypeString}},
		},
		Content: make(map[string]*huma.MediaType),
	}
	for media, schema := range formats {
		response.Content[media] = &huma.MediaType{Schema: schema}
	}
	s.api.OpenAPI().Paths[path].Get.Responses["200"] = response
}
