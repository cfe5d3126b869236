package api_test

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

// bills returns the rows of all pages of an export. Each row is a map from column to cell.
func (b *bundle) bills(t *testing.T, query string) (rows []map[string]string) {
	t.Helper()
	for path := "/v1/billing/statements/export?" + query; path != ""; {
		a := b.send(t, "GET", path, "")
		require.Equal(t, 200, a.status, a.body)
		require.Equal(t, "text/csv; charset=utf-8", a.header.Get("Content-Type"))
		cells := readCSV(t, a.body)
		for _, row := range cells[1:] {
			named := make(map[string]string)
			for i, name := range cells[0] {
				named[name] = row[i]
			}
			rows = append(rows, named)
		}
		path = a.next()
	}
	return rows
}

// TestBillExportHasEachLineOfTheMonthsPeriods checks that the file has each line of the month's periods, and that the
// amounts of its rows add up to the same totals.
func TestBillExportHasEachLineOfTheMonthsPeriods(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.priced(t)
	b.meter(t, "tokens", "token")
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"=cmd()","value":7}`)
	b.send(t, "POST", "/v1/customers", `{"external_id":"idle","name":"Idle"}`)
	month := b.now().UTC().Format("2006-01")
	rows := b.bills(t, "page_size=1&month="+month)
	require.Equal(t, rows, b.bills(t, "month="+month))

	sums := make(map[string]metering.Decimal)
	found := 0
	for _, row := range rows {
		amount, err := metering.ParseDecimal(row["amount"])
		require.NoError(t, err)
		sums[row["external_id"]] = sums[row["external_id"]].Add(amount)
		found++
	}
	for name, cell := range map[string]string{"acme": "acme", "%3Dcmd()": "'=cmd()", "idle": "idle"} {
		a := b.send(t, "GET", "/v1/billing/periods?customer="+name, "")
		require.Equal(t, 200, a.status, a.body)
		var list client.ListBillingPeriod
		require.NoError(t, json.Unmarshal([]byte(a.body), &list))
		var sum metering.Decimal
		for _, period := range list.Data {
			if period.End.Add(-time.Microsecond).UTC().Format("2006-01") != month {
				continue
			}
			for _, line := range period.Lines {
				amount, err := metering.ParseDecimal(line.Amount.String())
				require.NoError(t, err)
				sum = sum.Add(amount)
				found--
			}
		}
		require.Equal(t, sum.String(), sums[cell].String(), name)
	}
	require.Zero(t, found, "as many lines as the periods have")
	acme := rows[0]
	require.Equal(t, []string{"acme", "open", "usage", "calls", "141.75", "meter", "10.21", "0", "10.21", "USD"}, []string{
		acme["external_id"], acme["state"], acme["line"], acme["meter_slug"], acme["usage"], acme["price_source"], acme["charge"], acme["adjustments"], acme["amount"], acme["currency"],
	})
	require.Empty(t, b.bills(t, "month=2020-01"))
	log := b.send(t, "GET", "/v1/audit-log?action=statement.export", "")
	require.Contains(t, log.body, fmt.Sprintf(`"after":{"month":%q}`, month))
	for _, wrong := range []string{"2026-13", "2026-1", "26-01", "now"} {
		refused := b.send(t, "GET", "/v1/billing/statements/export?month="+wrong, "").problem(t, 422, "invalid")
		require.Equal(t, "query.month", refused.Errors[0].Location, wrong)
	}
}

// TestBillExportShowsLateUsageAndAdjustments checks that the file shows late usage at the closed period, and
// its adjustment in the amount of the next period.
func TestBillExportShowsLateUsageAndAdjustments(t *testing.T) {
	t.Parallel()
	b := setup(t)
	month := b.adjusted(t)
	columns := []string{"state", "line", "usage", "charge", "adjustments", "amount", "currency", "late_usage", "late_amount"}
	shown := func(month time.Time) (lines []string) {
		for _, row := range b.bills(t, "month="+month.Format("2006-01")) {
			var cells []string
			for _, name := range columns {
				cells = append(cells, row[name])
			}
			require.Equal(t, row["state"] == "closed", row["closed_at"] != "")
			lines = append(lines, strings.Join(cells, " "))
		}
		return lines
	}
	require.Equal(t, []string{"closed usage 141.75 10.21 0 10.21 USD 158.25 0.79"}, shown(month.Start))
	require.Equal(t, []string{"open usage 0 10 0.79 10.79 USD 0 0"}, shown(month.End))
}

// sendings is a client that stores the received body at each flush of the server.
type sendings struct {
	*httptest.ResponseRecorder

	bodies []string
}

// Flush stores the body that was received so far.
func (s *sendings) Flush() { s.bodies = append(s.bodies, s.Body.String()) }

// TestBillExportSendsBillsOfEachCustomerSeparately checks that the server sends the bills of a customer as soon as it
// has read them.
func TestBillExportSendsBillsOfEachCustomerSeparately(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.priced(t)
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"beta","value":7}`)
	deps := b.deps
	deps.Metrics = prometheus.NewRegistry()
	handler, err := api.New(deps)
	require.NoError(t, err)
	request := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/billing/statements/export?month="+b.now().UTC().Format("2006-01"), nil)
	require.NoError(t, b.authorized(t.Context(), request))
	sent := sendings{ResponseRecorder: httptest.NewRecorder()}
	handler.ServeHTTP(&sent, request)
	require.Equal(t, 200, sent.Code)
	require.GreaterOrEqual(t, len(sent.bodies), 2)
	require.Contains(t, sent.bodies[0], ",acme,")
	require.NotContains(t, sent.bodies[0], ",beta,")
	require.Contains(t, sent.bodies[1], ",beta,")
}
