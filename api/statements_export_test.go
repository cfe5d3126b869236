package api_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

// bills returns the rows of all pages of a month, by column.
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
		path, _ = strings.CutSuffix(strings.TrimPrefix(a.header.Get("Link"), "<"), `>; rel="next"`)
	}
	return rows
}

// The file has every line of the bills that the periods show, and its amounts are their totals.
func TestTheBillsOfAMonthAreThoseOfItsPeriods(t *testing.T) {
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
	require.Equal(t, []string{"acme", "open", "usage", "calls", "141.75", "10.21", "0", "10.21", "USD"}, []string{
		acme["external_id"], acme["state"], acme["line"], acme["meter_slug"], acme["usage"], acme["charge"], acme["adjustments"], acme["amount"], acme["currency"],
	})
	require.Empty(t, b.bills(t, "month=2020-01"))
	log := b.send(t, "GET", "/v1/audit-log?action=statement.export", "")
	require.Contains(t, log.body, fmt.Sprintf(`"after":{"month":%q}`, month))
	for _, wrong := range []string{"2026-13", "2026-1", "26-01", "now"} {
		refused := b.send(t, "GET", "/v1/billing/statements/export?month="+wrong, "").problem(t, 422, "invalid")
		require.Equal(t, "query.month", refused.Errors[0].Location, wrong)
	}
}
