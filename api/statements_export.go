package api

import (
	"bufio"
	"context"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

const statementsExport = "/v1/billing/statements/export"

type exportStatementsInput struct {
	Month     string `query:"month" required:"true" maxLength:"7" doc:"Month in the tenant's time zone, in the form YYYY-MM" example:"2026-11"`
	PageSize  int    `query:"page_size" minimum:"1" maximum:"5000" default:"1000" doc:"Maximum number of customers per page"`
	PageToken string `query:"page_token" maxLength:"2048" doc:"next_page_token of the previous page. The Link header contains it"`
}

// statementColumns contains the columns of the CSV file. In a row for usage, amount includes the adjustments.
var statementColumns = []string{
	"customer_id", "external_id", "customer_name", "period_id", "period_start", "period_end", "state", "closed_at", "line", "meter_slug",
	"usage", "event_count", "price_version", "price_source", "charge", "adjustments", "amount", "currency", "late_usage", "late_amount",
}

// exportedCustomers is the cursor of an export: the last customer of the previous page.
type exportedCustomers struct{ After metering.CustomerID }

// customerStatements contains the bills of one customer.
type customerStatements struct {
	metering.Customer
	statements []billing.Statement
}

func (s *server) registerStatementExports() {
	huma.Register(s.api, get("export-statements", statementsExport, BillingRead, "Export the bills of a month for finance",
		"Returns every line of the bills of all customers as CSV, for the billing periods that end in the month. A period that ends exactly at the "+
			"start of a month belongs to the previous month.\n\n"+
			"- Each page contains the bills of up to `page_size` customers, in order of creation. The `Link` header contains the next page.\n"+
			"- The column `amount` adds up to the totals of the bills by currency.\n"+
			"- Periods that are not closed show the amounts as of now: see the column `state`.\n"+
			"- A `'` is placed before text that a spreadsheet would read as a formula.\n"+
			"- Every export is recorded in the audit log."), s.exportStatements)
	s.describeFile(statementsExport, "The lines of one page of customers", map[string]*huma.Schema{"text/csv": {Type: huma.TypeString}})
}

// exportStatements streams the bills of a page of customers, one customer after another.
func (s *server) exportStatements(ctx context.Context, in *exportStatementsInput) (*huma.StreamResponse, error) {
	tenant := principalOf(ctx).Tenant
	month, err := monthNamed(in.Month, tenant.Location())
	if err != nil {
		return nil, err
	}
	var after exportedCustomers
	if err := s.readPageToken(ctx, in.PageToken, &after); err != nil {
		return nil, err
	}
	if err := s.beginExport(ctx, tenant.ID); err != nil {
		return nil, err
	}
	ids, err := s.Store.Customers.IDs(ctx, tenant.ID, after.After, in.PageSize+1)
	if err != nil {
		return nil, err
	}
	var next *string
	if len(ids) > in.PageSize {
		ids = ids[:in.PageSize]
		next = new(s.pageToken(ctx, exportedCustomers{ids[len(ids)-1]}))
	}
	read := func(id metering.CustomerID) (of customerStatements, err error) {
		if of.Customer, err = s.Store.Customers.GetByID(ctx, tenant.ID, id); err != nil {
			return of, err
		}
		of.statements, err = s.Store.Ledger.StatementsEnding(ctx, tenant.ID, id, month, s.Now())
		return of, err
	}
	var first customerStatements // read before the response begins, so that a failure is still reported as a problem
	if len(ids) > 0 {
		if first, err = read(ids[0]); err != nil {
			return nil, err
		}
		ids = ids[1:]
	}
	if err := s.auditAsked(ctx, "statement.export", tenant.ID.String(), map[string]any{"month": in.Month}); err != nil {
		return nil, err
	}
	return &huma.StreamResponse{Body: func(hc huma.Context) {
		stream(ctx, hc, func(ctx context.Context, hc huma.Context, out *bufio.Writer, flush func() error) error {
			beginFile(ctx, hc, "text/csv; charset=utf-8", "statements-"+in.Month+".csv", next)
			rows := csv.NewWriter(out)
			if err := rows.Write(statementColumns); err != nil {
				return err
			}
			send := func(of customerStatements) error {
				if err := rows.WriteAll(of.rows()); err != nil {
					return err
				}
				return flush() // at once, because reading the next customer can take long
			}
			if err := send(first); err != nil {
				return err
			}
			for _, id := range ids {
				of, err := read(id)
				if err != nil {
					return err
				}
				if err := send(of); err != nil {
					return err
				}
			}
			rows.Flush()
			return flush()
		})
	}}, nil
}

// monthNamed returns the month of a text in the form YYYY-MM, in the time zone.
func monthNamed(text string, zone *time.Location) (metering.Range, error) {
	named, err := time.Parse("2006-01", text)
	if err != nil || named.Year() < 1 {
		return metering.Range{}, metering.Invalid("query.month", "must be a month in the form YYYY-MM, such as 2026-11")
	}
	middle := time.Date(named.Year(), named.Month(), 15, 0, 0, 0, 0, zone) // inside the month, even if the clock changes at its ends
	return billing.CalendarPeriod(middle, zone), nil
}

// rows returns one row for each line of the bills. An adjustment that is not part of a line gets a row of its
// own.
func (of customerStatements) rows() (rows [][]string) {
	for _, s := range of.statements {
		head := of.head(s)
		for _, l := range s.Lines {
			rows = append(rows, append(slices.Clip(head), "usage", textCell(l.MeterSlug), l.Usage.String(), strconv.FormatInt(l.Events, 10), strconv.Itoa(l.PriceVersion),
				string(l.Source), l.Charge.String(), adjustedIn(s, l).String(), l.Amount.String(), l.Currency, l.LateUsage.String(), l.LateCharge.String()))
		}
		for _, a := range s.Adjustments {
			if _, known := s.LineOf(a); known {
				continue
			}
			rows = append(rows, append(slices.Clip(head), "adjustment", textCell(a.MeterSlug), a.Quantity.String(), "0", "0",
				"", "0", a.Amount.String(), a.Amount.String(), a.Currency, "0", "0"))
		}
	}
	return rows
}

// head returns the cells that all rows of a bill have in common.
func (of customerStatements) head(s billing.Statement) []string {
	id, closedAt := "", ""
	if s.ID != 0 {
		id = s.ID.String()
	}
	if s.ClosedAt != nil {
		closedAt = s.ClosedAt.UTC().Format(time.RFC3339Nano)
	}
	return []string{
		of.ID.String(), textCell(of.ExternalID), textCell(of.Name), id, s.Start.UTC().Format(time.RFC3339Nano), s.End.UTC().Format(time.RFC3339Nano),
		fmt.Sprint(s.State), closedAt,
	}
}

// adjustedIn returns the sum of the adjustments in a line's amount.
func adjustedIn(s billing.Statement, l billing.StatementLine) (sum metering.Decimal) {
	for _, a := range s.Adjustments {
		if a.MeterID == l.MeterID && a.Currency == l.Currency {
			sum = sum.Add(a.Amount)
		}
	}
	return sum
}
