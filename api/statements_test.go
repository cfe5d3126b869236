package api_test

import (
	"encoding/json"
	"math"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/webhook"
)

// priced creates a meter with a price, and usage of 141.75 units by acme.
func (b *bundle) priced(t *testing.T) {
	t.Helper()
	b.meter(t, "calls", "call")
	set := b.send(t, "PUT", "/v1/meters/calls/pricing", `{"base_price":10,"included_units":100,"overage_rate":0.005}`)
	require.Equal(t, 200, set.status, set.body)
	now := b.now().UTC().Format(time.RFC3339)
	b.at(t, now, "a", "99.5")
	b.at(t, now, "b", "42.25")
}

// explained returns the breakdown of the meter calls for acme.
func (b *bundle) explained(t *testing.T, query string) client.Explain {
	t.Helper()
	a := b.send(t, "GET", "/v1/billing/explain?customer=acme&meter=calls"+query, "")
	require.Equal(t, 200, a.status, a.body)
	var e client.Explain
	require.NoError(t, json.Unmarshal([]byte(a.body), &e))
	return e
}

// periods returns acme's billing periods.
func (b *bundle) periods(t *testing.T) []client.BillingPeriod {
	t.Helper()
	a := b.send(t, "GET", "/v1/billing/periods?customer=acme", "")
	require.Equal(t, 200, a.status, a.body)
	var list client.ListBillingPeriod
	require.NoError(t, json.Unmarshal([]byte(a.body), &list))
	return list.Data
}

// statement returns the statement of a billing period.
func (b *bundle) statement(t *testing.T, period, query string) client.PeriodStatement {
	t.Helper()
	a := b.send(t, "GET", "/v1/billing/statements/"+period+query, "")
	require.Equal(t, 200, a.status, a.body)
	var s client.PeriodStatement
	require.NoError(t, json.Unmarshal([]byte(a.body), &s))
	return s
}

// stepTexts returns the name, the amount and the unit of each step.
func stepTexts(steps []client.Step) (all []string) {
	for _, s := range steps {
		all = append(all, string(s.Name)+" "+s.Amount.String()+" "+s.Unit)
	}
	return all
}

// accepted plans a report of acme's usage and completes it as accepted.
func (b *bundle) accepted(t *testing.T) (report ledger.Report) {
	t.Helper()
	planned := b.plan(t)
	require.Len(t, planned.Send, 1)
	require.NoError(t, b.store.Ledger.Complete(t.Context(), b.tenant.ID, planned.Send[0].ID, billing.Accepted, "taken", b.now()))
	return planned.Send[0]
}

// saveReceiver saves a webhook provider that receives statements at the URL.
func (b *bundle) saveReceiver(t *testing.T, url string) {
	t.Helper()
	_, err := b.store.Providers.Save(t.Context(), b.tenant.ID, metering.Operator, metering.Provider{
		Kind: metering.Webhook, Statements: true, Account: url, SealedSecret: []byte("sealed"), ValidatedAt: b.now(),
	})
	require.NoError(t, err)
}

func TestARunningPeriodIsExplainedBeforeItIsStored(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.priced(t)
	e := b.explained(t, "")
	month := billing.CalendarPeriod(b.now(), time.UTC)
	require.Nil(t, e.Period.Id)
	require.Equal(t, client.PeriodHead{
		Start: month.Start, End: month.End, State: "open", DueAt: month.End.Add(b.tenant.Grace),
	}, e.Period)
	require.Equal(t, []string{
		"usage 141.75 units", "included_units 100 units", "overage_units 41.75 units", "overage_rate 0.005 USD", "overage_charge 0.20875 USD",
		"base_price 10 USD", "exact_charge 10.20875 USD", "charge 10.21 USD",
	}, stepTexts(e.Steps))
	require.Equal(t, [3]string{"141.75", "10.21", "10.21"}, [3]string{e.Usage.String(), e.Charge.String(), e.Amount.String()})
	usage, charge := e.Steps[0], e.Steps[7]
	require.Equal(t, "The meter's usage in the period, from 2 events.", usage.Description)
	require.EqualValues(t, 2, *usage.EventCount)
	require.NotNil(t, usage.MeterVersion)
	require.EqualValues(t, 2, *charge.RoundedTo)
	require.EqualValues(t, 1, *e.Steps[1].PriceVersion)
	require.Empty(t, e.LateSteps)

	require.Equal(t, e, b.explained(t, "&at="+url.QueryEscape(month.Start.Format(time.RFC3339Nano))))
	require.Equal(t, e, b.explained(t, "&at="+url.QueryEscape(month.End.Add(-time.Microsecond).Format(time.RFC3339Nano))))
	require.Nil(t, b.periods(t)[0].Id)
}

// TestStatementDeductsAmountsOfPreviousReceiver checks that a statement deducts the amounts of a previous receiver, and
// lists them. The statement, the explanation and the report have the same amounts. The preview shows the charge
// before the deduction.
func TestStatementDeductsAmountsOfPreviousReceiver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.priced(t)
	b.saveReceiver(t, "https://1.example.com/")
	former := b.accepted(t)
	b.saveReceiver(t, "https://2.example.com/")
	b.at(t, b.now().UTC().Format(time.RFC3339), "c", "58.25") // 200 in total: 10.50
	b.plan(t)

	id := *b.periods(t)[0].Id
	s := b.statement(t, id, "")
	require.Equal(t, id, *s.Id)
	require.Equal(t, "acme", s.ExternalId)
	require.EqualValues(t, "open", s.State)
	require.Len(t, s.Lines, 1)
	line := s.Lines[0]
	require.Equal(t, []string{
		"charge 10.5 USD", "elsewhere_units 141.75 units", "billed_elsewhere 10.21 USD", "quantity 58.25 units", "amount 0.29 USD",
	}, stepTexts(line.Steps)[7:])
	part := (*line.Steps[9].Steps)[0]
	require.Equal(t, []string{"part 10.21 USD"}, stepTexts(*line.Steps[9].Steps))
	require.EqualValues(t, "statement", part.Series.Kind)
	require.Equal(t, []client.StatementTotal{{Currency: "USD", Amount: "0.29", Adjustments: "0"}}, s.Totals)
	require.Empty(t, s.Adjustments)

	e := b.explained(t, "&period="+id)
	require.Equal(t, line.Steps, e.Steps)
	require.Equal(t, line.Amount, e.Amount)
	preview := b.send(t, "GET", "/v1/billing/preview?customer=acme", "")
	require.Contains(t, preview.body, `"usage":200,"unit_price":0.005,"amount":10.5,`)

	require.Len(t, s.Reports.Data, 2)
	sent, first := s.Reports.Data[0], s.Reports.Data[1]
	require.Equal(t, [2]string{"58.25", "0.29"}, [2]string{sent.Lines[0].Quantity.String(), sent.Lines[0].Amount.String()})
	require.EqualValues(t, "sending", sent.State)
	require.NotNil(t, sent.FirstSentAt)
	require.Nil(t, sent.DecidedAt)
	require.Equal(t, former.ID.String(), first.ReportId)
	require.Equal(t, part.Series.ConnectionId, first.ConnectionId)
	require.NotEqual(t, sent.ConnectionId, first.ConnectionId)
	require.Equal(t, [3]string{"webhook", "accepted", "taken"}, [3]string{first.Provider, string(first.State), first.Response})
	require.EqualValues(t, 1, first.Attempts)
	require.NotNil(t, first.DecidedAt)
	require.Equal(t, [2]string{"141.75", "10.21"}, [2]string{first.Lines[0].Quantity.String(), first.Lines[0].Amount.String()})
	var bytes []byte
	var body struct {
		Data struct {
			Meters []struct{ Usage, Amount json.Number }
		}
	}
	require.NoError(t, dbtest.Conn(t).QueryRow(t.Context(), `select body from billing_reports where id = $1`, sent.ReportId).Scan(&bytes))
	require.NoError(t, json.Unmarshal(bytes, &body))
	require.Equal(t, [2]json.Number{"58.25", "0.29"}, [2]json.Number{body.Data.Meters[0].Usage, body.Data.Meters[0].Amount})

	page := b.statement(t, id, "?page_size=1")
	require.True(t, page.Reports.HasMore)
	require.Equal(t, s.Reports.Data[:1], page.Reports.Data)
	page = b.statement(t, id, "?page_size=1&page_token="+url.QueryEscape(*page.Reports.NextPageToken))
	require.False(t, page.Reports.HasMore)
	require.Equal(t, s.Reports.Data[1:], page.Reports.Data)
}

// adjusted closes the current month at 10.21 USD, and returns the month. Late usage raises its charge to 11 USD,
// so the next month has an adjustment.
func (b *bundle) adjusted(t *testing.T) (month metering.Range) {
	t.Helper()
	b.priced(t)
	b.saveReceiver(t, "https://1.example.com/")
	b.accepted(t)
	month = billing.CalendarPeriod(b.now(), time.UTC)
	b.ahead.Store(int64(month.End.Add(b.tenant.Grace + time.Hour).Sub(b.now())))
	acme, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	plan := func() ledger.Planned {
		planned, err := b.store.Ledger.Plan(t.Context(), b.tenant.ID, acme.ID, ledger.Pass{After: math.MaxInt64}, dbtest.Frame, b.now())
		require.NoError(t, err)
		return planned
	}
	for planned := plan(); len(planned.Send) > 0; planned = plan() {
		require.NoError(t, b.store.Ledger.Complete(t.Context(), b.tenant.ID, planned.Send[0].ID, billing.Accepted, "taken", b.now()))
	}
	closing, err := b.store.Ledger.ClosePeriods(t.Context(), b.tenant.ID, []metering.CustomerID{acme.ID}, b.now())
	require.NoError(t, err)
	require.Empty(t, closing.Open)
	b.at(t, month.Start.Format(time.RFC3339), "late", "158.25") // 300 in total: 11.00
	return month
}

func TestStatementsShowLateUsageAndItsAdjustment(t *testing.T) {
	t.Parallel()
	b := setup(t)
	month := b.adjusted(t)
	periods := b.periods(t)
	require.Len(t, periods, 2)
	closed := b.statement(t, *periods[1].Id, "")
	require.EqualValues(t, "closed", closed.State)
	require.NotNil(t, closed.ClosedAt)
	line := closed.Lines[0]
	require.Equal(t, [5]string{"141.75", "10.21", "10.21", "158.25", "0.79"}, [5]string{
		line.Usage.String(), line.Charge.String(), line.Amount.String(), line.LateUsage.String(), line.LateAmount.String(),
	})
	require.Equal(t, "amount 0.79 USD", stepTexts(line.LateSteps)[len(line.LateSteps)-1])
	require.Nil(t, line.Digest)
	require.Equal(t, line.LateSteps, b.explained(t, "&period="+*periods[1].Id).LateSteps)
	_, err := b.store.Ledger.DigestClosed(t.Context(), 1000)
	require.NoError(t, err)
	proof := b.explained(t, "&period="+*periods[1].Id).Digest
	require.Equal(t, proof, b.statement(t, *periods[1].Id, "").Lines[0].Digest)
	require.Equal(t, ledger.DigestAlgorithm, proof.Algorithm)
	require.Equal(t, line.EventCount, proof.EventCount, "what came late is not in it")
	require.Regexp(t, "^[0-9a-f]{64}$", proof.Hash)

	open := b.statement(t, *periods[0].Id, "")
	require.EqualValues(t, "open", open.State)
	require.Len(t, open.Adjustments, 1)
	adjusted := open.Adjustments[0]
	require.Equal(t, month.Start, adjusted.Period.Start)
	require.Equal(t, [3]string{"158.25", "0.79", "late usage"}, [3]string{
		adjusted.Lines[0].Quantity.String(), adjusted.Lines[0].Amount.String(), adjusted.Lines[0].Reason,
	})
	require.Equal(t, line.LateSteps, adjusted.Lines[0].Steps)
	require.Equal(t, []string{"charge 10 USD", "adjustment 0.79 USD", "amount_with_adjustments 10.79 USD"}, stepTexts(open.Lines[0].Steps)[7:])
	require.Equal(t, []client.StatementTotal{{Currency: "USD", Amount: "10.79", Adjustments: "0.79"}}, open.Totals)
}

func TestRefusedExplanationNamesParameter(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.priced(t)
	b.saveReceiver(t, "https://1.example.com/")
	b.plan(t)
	id := *b.periods(t)[0].Id
	other := setup(t)
	other.priced(t)
	other.saveReceiver(t, "https://1.example.com/")
	other.plan(t)
	theirs := *other.periods(t)[0].Id
	month := billing.CalendarPeriod(b.now(), time.UTC)
	for query, location := range map[string]string{
		"customer=nobody&meter=calls":                                                        "query.customer",
		"customer=acme&meter=nothing":                                                        "query.meter",
		"customer=acme&meter=calls&period=" + theirs:                                         "query.period",
		"customer=acme&meter=calls&period=per_0":                                             "query.period",
		"customer=acme&meter=calls&period=42":                                                "query.period",
		"customer=acme&meter=calls&at=" + month.End.Format(time.RFC3339):                     "query.at",
		"customer=acme&meter=calls&at=" + month.Start.AddDate(-1, 0, 0).Format(time.RFC3339): "query.at",
	} {
		p := b.send(t, "GET", "/v1/billing/explain?"+query, "").problem(t, 404, "not_found")
		require.Len(t, p.Errors, 1)
		require.Equal(t, location, p.Errors[0].Location, query)
	}
	p := b.send(t, "GET", "/v1/billing/explain?customer=acme&meter=calls&at="+month.Start.Format(time.RFC3339)+"&period="+id, "").problem(t, 422, "invalid")
	require.Equal(t, "query.at", p.Errors[0].Location)
	for _, period := range []string{theirs, "per_0", "per_" + strconv.Itoa(math.MaxInt64), "42", "x"} {
		p = b.send(t, "GET", "/v1/billing/statements/"+period, "").problem(t, 404, "not_found")
		require.Equal(t, "path.period", p.Errors[0].Location, period)
	}

	// A meter that is created after events of its type first counts these events.
	b.ingest(t, "/v1/events", `{"event_type":"stored","customer_id":"acme"}`)
	b.meter(t, "storage", "stored")
	p = b.send(t, "GET", "/v1/billing/explain?customer=acme&meter=storage", "").problem(t, 503, "meter_backfilling")
	require.Equal(t, "query.meter", p.Errors[0].Location)
	require.Len(t, b.statement(t, id, "").Lines, 1)
}

// TestAReceiverCanCheckTheAmountOfAStatement computes the amount by the rule in docs/api/provider.md, for a first
// receiver and for the receiver that replaces it.
func TestAReceiverCanCheckTheAmountOfAStatement(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.priced(t)
	b.saveReceiver(t, "https://1.example.com/")
	b.checkStatement(t, "141.75", "10.21")
	b.saveReceiver(t, "https://2.example.com/")
	b.at(t, b.now().UTC().Format(time.RFC3339), "c", "58.25")
	b.checkStatement(t, "58.25", "0.29")
}

// checkStatement plans acme's statement, compares its line with the explanation, and completes the report as
// accepted.
func (b *bundle) checkStatement(t *testing.T, usage, amount string) {
	t.Helper()
	acme, err := b.store.Customers.Get(t.Context(), b.tenant.ID, "acme")
	require.NoError(t, err)
	numbers, err := b.store.Ledger.LastNumbers(t.Context(), b.tenant.ID, []metering.CustomerID{acme.ID})
	require.NoError(t, err)
	var sent metering.MessageOf[webhook.Statement]
	frame := func(_ metering.ProviderKind, m billing.Message) (billing.Framed, error) {
		framed, err := webhook.NewProvider(nil).Frame(m)
		require.NoError(t, json.Unmarshal(framed.Body, &sent))
		return framed, err
	}
	pass := ledger.Pass{After: numbers[acme.ID], Lease: time.Minute}
	planned, err := b.store.Ledger.Plan(t.Context(), b.tenant.ID, acme.ID, pass, frame, b.now())
	require.NoError(t, err)
	require.Len(t, planned.Send, 1)
	require.Len(t, sent.Data.Meters, 1)
	line := sent.Data.Meters[0]
	require.Equal(t, []string{usage, amount}, []string{line.Usage.String(), line.Amount.String()})

	steps := map[string]metering.Decimal{}
	for _, step := range b.explained(t, "&at="+url.QueryEscape(sent.Data.Period.Start.Format(time.RFC3339))).Steps {
		steps[string(step.Name)], err = metering.ParseDecimal(step.Amount.String())
		require.NoError(t, err)
	}
	require.Equal(t, steps["overage_rate"].String(), line.UnitPrice.String())
	total := line.Usage.Add(steps["elsewhere_units"])
	charge := steps["base_price"].Add(total.Sub(steps["included_units"]).Mul(line.UnitPrice)).Round(2)
	require.Equal(t, line.Amount.String(), charge.Sub(steps["billed_elsewhere"]).String())
	require.NoError(t, b.store.Ledger.Complete(t.Context(), b.tenant.ID, planned.Send[0].ID, billing.Accepted, "taken", b.now()))
}

// TestExplainExampleOfDocsMatchesResponse compares the example of docs/api/bills.md with a response.
func TestExplainExampleOfDocsMatchesResponse(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/api/bills.md")
	require.NoError(t, err)
	_, after, found := strings.Cut(string(text), "<!-- explain -->\n```json\n")
	require.True(t, found)
	documented, _, _ := strings.Cut(after, "\n```\n")

	b := setup(t)
	b.priced(t)
	b.saveReceiver(t, "https://1.example.com/")
	b.accepted(t)
	b.saveReceiver(t, "https://2.example.com/")
	b.at(t, b.now().UTC().Format(time.RFC3339), "c", "58.25")
	b.accepted(t)
	a := b.send(t, "GET", "/v1/billing/explain?customer=acme&meter=calls", "")
	require.Equal(t, 200, a.status, a.body)
	varying := regexp.MustCompile(`"(customer_id|meter_id|connection_id|id|start|end|due_at)":\s*"[^"]*"|"meter_version":\s*\d+`)
	require.JSONEq(t, varying.ReplaceAllString(a.body, `"x":0`), varying.ReplaceAllString(documented, `"x":0`))
}
