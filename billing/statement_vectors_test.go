package billing_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/dev/lives"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/webhook"
)

//go:generate go test -run TestStatementVectorsAreCurrent -update

const statementVectors = "../client/testdata/statements.jsonl"

// TestStatementVectorsAreCurrent checks that the stored statements, which the tests of the three clients verify, equal
// the statements that the current code creates.
func TestStatementVectorsAreCurrent(t *testing.T) {
	t.Parallel()
	var statements bytes.Buffer
	seen := make(map[string]int)
	var bodies [][]byte
	for seed := range uint64(20) {
		bodies = append(bodies, statementVector(t, seed))
	}
	for _, body := range append(bodies, statementExamples(t)...) {
		require.NoError(t, client.VerifyStatement(body), string(body))
		statements.Write(append(body, '\n'))
		for _, found := range regexp.MustCompile(`"(?:name|currency)":"(\w+)"`).FindAllSubmatch(body, -1) {
			seen[string(found[1])]++
		}
	}
	for _, name := range append(billing.StepNames(), "JPY", "USD", "KWD") {
		if !slices.Contains(inNoStatement, name) {
			require.Greater(t, seen[name], 1, "%s is hardly ever stated", name)
		}
	}
	require.Less(t, statements.Len(), 200_000)
	if *update {
		require.NoError(t, os.WriteFile(statementVectors, statements.Bytes(), 0o600))
	}
	text, err := os.ReadFile(statementVectors)
	require.NoError(t, err)
	require.Equal(t, statements.String(), string(text), "the statements are not current: make generate")
}

// inNoStatement lists the steps that only GET /v1/billing/explain returns. The clients do not know them.
var inNoStatement = []string{billing.StepUnbilledUnits, billing.StepUnbilled, billing.StepAdjustment, billing.StepAll}

// verifiers lists the files of each client that verify a statement.
var verifiers = [][]string{
	{"verify_formulas.go", "verify_forms.go"},
	{"typescript/statements.ts", "typescript/statement-forms.ts"},
	{"python/src/odometer_client/statements.py", "python/src/odometer_client/statement_forms.py"},
}

// TestEachClientListsEachBreakdownStep checks that each client lists every step of a statement, because an unknown step
// fails a client's verification of a statement.
func TestEachClientListsEachBreakdownStep(t *testing.T) {
	t.Parallel()
	for _, files := range verifiers {
		text := verifierText(t, files)
		for _, name := range billing.StepNames() {
			known := regexp.MustCompile(`(?m)^\s*\[?"` + name + `"[:,]`).MatchString(text)
			require.Equal(t, !slices.Contains(inNoStatement, name), known, "%s in %v", name, files)
		}
	}
}

// TestEachClientKnowsTheDecimalsOfEachCurrency checks that each client has the currencies without two decimals, because
// it recomputes the rounding of a charge.
func TestEachClientKnowsTheDecimalsOfEachCurrency(t *testing.T) {
	t.Parallel()
	codes := make(map[int32][]string)
	for a := 'A'; a <= 'Z'; a++ {
		for b := 'A'; b <= 'Z'; b++ {
			for c := 'A'; c <= 'Z'; c++ {
				code := string([]rune{a, b, c})
				codes[metering.MinorDigits(code)] = append(codes[metering.MinorDigits(code)], code)
			}
		}
	}
	delete(codes, 2)
	for _, files := range verifiers {
		text := verifierText(t, files)
		for digits, codes := range codes {
			require.Regexp(t, fmt.Sprintf(`\b%d\b\W+%s\b`, digits, strings.Join(codes, `[\s,"]+`)), text, "currencies in %v", files)
		}
	}
}

func verifierText(t *testing.T, files []string) string {
	var all []byte
	for _, file := range files {
		text, err := os.ReadFile("../client/" + file)
		require.NoError(t, err)
		all = append(all, text...)
	}
	return string(all)
}

// statementVector returns the message body of February's statement for three meters. January is closed and has late
// usage.
func statementVector(t *testing.T, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 12))
	f := withStatementReceiver(second, knownOf(february.Start.AddDate(0, 0, 20), billing.Period{Range: january, Complete: true}, billing.Period{Range: february}))
	f.Stored[0].ClosedAt = new(february.Start.Add(grace))
	f.LateMonths = []metering.Range{january}
	f.Meters = nil
	models := billing.Model("").Values()
	for n := range 3 {
		model := models[(3*int(seed)+n)%len(models)]
		terms := anyTerms(rng)
		for terms.PriceModel() != model {
			terms = anyTerms(rng)
		}
		if n == int(seed)%4 {
			terms = anyDimensionTerms(rng)
		}
		addVector(rng, &f, metering.MeterID(n+1), terms)
	}
	report := statementReport(t, f)
	if rng.IntN(8) == 0 { // as if an operator had excluded the first meter
		report.Lines[0].Working = nil
	}
	return framedStatement(t, report, "acme", int64(seed)+1, f.Now)
}

// statementReport returns the first report that is planned from the facts.
func statementReport(t *testing.T, f billing.Facts) billing.Report {
	plan := billing.NewBooks(f).Plan()
	require.NotEmpty(t, plan.Reports)
	return plan.Reports[0]
}

// framedStatement returns the message body of a statement.
func framedStatement(t *testing.T, report billing.Report, customer string, sequence int64, now time.Time) []byte {
	framed, err := webhook.NewProvider(nil).Frame(billing.Message{
		Report: report, ID: uuid.UUID{1}, TenantID: 1, CustomerID: 1, CustomerExternalID: customer, Sequence: sequence,
		Periods: []metering.Range{january, february}, Now: now,
	})
	require.NoError(t, err)
	return framed.Body
}

// statementExamples returns short statements of one meter. The customer's name describes the statement. The tests of
// the clients change these statements to wrong ones.
func statementExamples(t *testing.T) (bodies [][]byte) {
	d := metering.MustDecimal
	usd := func(m billing.Model, t billing.Terms) billing.Terms { t.Model, t.Currency = m, "USD"; return t }
	tiers := billing.Terms{Tiers: []billing.Tier{
		{UpTo: new(d("10")), UnitPrice: d("2"), FlatFee: d("5")}, {UpTo: new(d("20")), UnitPrice: d("1"), FlatFee: d("3")}, {UnitPrice: d("0.5"), FlatFee: d("1")},
	}}
	size := func(value string) map[string][]metering.Scalar {
		return map[string][]metering.Scalar{"size": {metering.ParseScalar(json.RawMessage(value))}}
	}
	bySize := billing.Terms{Currency: "USD", Dimensions: &billing.Dimensions{By: []string{"size"}, Prices: []billing.DimensionPrice{
		{Match: size(`"large"`), Rate: billing.Rate{Model: billing.ModelPercentage, Percent: d("10"), FixedFee: d("0.3")}},
		{Match: size(`"small"`), Rate: billing.Rate{IncludedUnits: d("3"), OverageRate: d("2")}},
	}}}
	sizes := billing.Measured{Units: d("19"), Events: 13, Dimensions: []billing.DimensionUsage{
		{Key: json.RawMessage(`{"size":"large"}`), Units: d("7"), Events: 10},
		{Key: json.RawMessage(`{"size":"other"}`), Units: d("1"), Events: 1},
		{Key: json.RawMessage(`{"size":"small"}`), Units: d("11"), Events: 2},
	}}
	percentage := usd(billing.ModelPercentage, billing.Terms{Percent: d("10"), FixedFee: d("0.3")})
	for _, e := range []struct {
		name   string
		terms  billing.Terms
		usage  billing.Measured
		closed *billing.ClosedLine // nil: the usage is of the open period, and not late
	}{
		{name: "cents", terms: usd(billing.ModelPerUnit, billing.Terms{UnitPrice: d("1.051")}), usage: billing.Measured{Units: d("10"), Events: 4}},
		{name: "yen", terms: billing.Terms{Model: billing.ModelPerUnit, Currency: "JPY", UnitPrice: d("1.04")}, usage: billing.Measured{Units: d("10"), Events: 4}},
		// The exact charge is 2 × 10⁻²⁴ / 3 below 0.015, so that it is rounded to 0.01.
		{name: "quotient", terms: usd(billing.ModelPerUnit, billing.Terms{UnitPrice: d("0.150000000001"), PerUnits: 3}), usage: billing.Measured{Units: d("0.299999999998"), Events: 1}},
		{name: "graduated", terms: usd(billing.ModelGraduated, tiers), usage: billing.Measured{Units: d("30"), Events: 3}},
		{name: "volume", terms: usd(billing.ModelVolume, tiers), usage: billing.Measured{Units: d("30"), Events: 3}},
		{name: "percentage", terms: percentage, usage: billing.Measured{Units: d("70"), Events: 10}},
		{name: "dimensions", terms: bySize, usage: sizes},
		{name: "late", terms: percentage, usage: billing.Measured{Units: d("20"), Events: 3}, closed: &billing.ClosedLine{Usage: d("50"), Events: 2, Charge: d("5.6")}},
		{name: "late units", terms: percentage, usage: billing.Measured{Units: d("20.004"), Events: 3}, closed: &billing.ClosedLine{Usage: d("50"), Events: 2, Charge: d("5"), Scale: new(int32(2))}},
		{
			name: "late dimensions", terms: bySize,
			usage:  billing.Measured{Units: d("1"), Events: 4, Dimensions: []billing.DimensionUsage{{Key: json.RawMessage(`{"size":"large"}`), Units: d("1"), Events: 4}}},
			closed: &billing.ClosedLine{Usage: d("19"), Events: 13, Dimensions: sizes.Dimensions, Charge: d("16.7"), Scale: new(int32(0))},
		},
		{name: "late trial", terms: percentage, usage: billing.Measured{Units: d("20"), Events: 3}, closed: &billing.ClosedLine{Usage: d("50"), Events: 2, Trial: true}},
	} {
		require.NoError(t, e.terms.Validate(), e.name)
		f := withStatementReceiver(second, knownOf(february.Start.AddDate(0, 0, 20), billing.Period{Range: january, Complete: true}, billing.Period{Range: february}))
		f.Stored[0].ClosedAt = new(february.Start.Add(grace))
		f.Prices[1] = []billing.Price{{MeterID: 1, Version: 1, Terms: e.terms}}
		used := billing.Usage{Period: february.Start, MeterID: 1, Total: e.usage.Units, Events: e.usage.Events, Dimensions: e.usage.Dimensions}
		if l := e.closed; l != nil {
			l.MeterID, l.PriceVersion, l.Terms, l.Currency, l.Billed = 1, 1, e.terms, e.terms.Currency, true
			f.LateMonths, f.Stored[0].Closed = []metering.Range{january}, []billing.ClosedLine{*l}
			used = billing.Usage{
				Period: january.Start, MeterID: 1, Total: l.Usage.Add(e.usage.Units), Events: l.Events + e.usage.Events, Late: e.usage.Units, LateEvents: e.usage.Events,
				Dimensions: billing.AddDimensions(l.Dimensions, e.usage.Dimensions), LateDimensions: e.usage.Dimensions,
			}
		}
		f.Usage = []billing.Usage{used}
		bodies = append(bodies, framedStatement(t, statementReport(t, f), e.name, 1, f.Now))
	}
	return bodies
}

// vectorUsage draws usage to charge at the terms, often around one of their boundaries.
func vectorUsage(rng *rand.Rand, terms billing.Terms) billing.Measured {
	if terms.Dimensions != nil {
		return measured(anyDimensionUsage(rng, terms))
	}
	usages := anyUsages(rng, terms)
	return billing.Measured{Units: usages[rng.IntN(len(usages))], Events: rng.Int64N(9)}
}

// addVector adds a meter to the facts, with usage of January and February and late usage of January.
func addVector(rng *rand.Rand, f *billing.Facts, meter metering.MeterID, terms billing.Terms) {
	f.Meters = append(f.Meters, metering.Meter{ID: meter, Slug: fmt.Sprintf("meter_%d", meter), Version: metering.MeterVersion{Status: metering.Complete}})
	f.Prices[meter] = []billing.Price{{MeterID: meter, Version: 1, Terms: terms}}
	then, late, now := vectorUsage(rng, terms), billing.Measured{Units: anyDecimal(rng), Events: 1}, vectorUsage(rng, terms)
	if terms.Dimensions != nil {
		late = vectorUsage(rng, terms)
	}
	closed := billing.ClosedLine{
		MeterID: meter, Usage: then.Units, Events: then.Events, Dimensions: then.Dimensions, PriceVersion: 1, Terms: terms, Currency: terms.Currency, Billed: true,
		Trial: rng.IntN(6) == 0,
	}
	units := closed.Usage
	if terms.Dimensions == nil && rng.IntN(4) == 0 {
		closed.Scale = new(rng.Int32N(3))
		units = billing.Units(units, *closed.Scale)
	}
	if rng.IntN(6) == 0 {
		closed.Price = &tariff{"price_1", terms.Currency, lives.Tariff{Flat: metering.Whole(3), UpTo: metering.Whole(10), First: metering.MustDecimal("1.5"), Rest: metering.MustDecimal("0.3")}}
		closed.PriceVersion, closed.Terms = 0, billing.Terms{}
		for _, l := range closed.Price.Lines(units) {
			closed.Charge = closed.Charge.Add(l.Amount)
		}
	} else {
		closed.Charge = terms.ChargeIn(terms.Currency, billing.Measured{Units: units, Events: closed.Events, Dimensions: closed.Dimensions})
	}
	if closed.Trial {
		closed.Charge = metering.Decimal{}
	}
	f.Stored[0].Closed = append(f.Stored[0].Closed, closed)
	f.Usage = append(f.Usage,
		billing.Usage{
			Period: january.Start, MeterID: meter, Total: then.Units.Add(late.Units), Events: then.Events + late.Events, Late: late.Units, LateEvents: late.Events,
			Dimensions: billing.AddDimensions(then.Dimensions, late.Dimensions), LateDimensions: late.Dimensions,
		},
		billing.Usage{Period: february.Start, MeterID: meter, Total: now.Units, Events: now.Events, Dimensions: now.Dimensions})
	if rng.IntN(4) == 0 {
		f.Booked = append(f.Booked, billing.Booked{
			Period: january.Start, MeterID: meter, Events: closed.Events, Units: units, Charge: closed.Charge,
			OnlyReported: metering.MustDecimal("1.5"), OnlyReportedCharge: metering.Whole(2),
		})
	}
	for _, period := range []metering.Range{january, february} {
		if rng.IntN(3) == 0 {
			reported := stated(first, period, "0.25", "3")
			if period == january {
				reported = adjusted(first, period, february, "0.25", "3")
			}
			reported.MeterID, reported.Taken.Currency, reported.Standing.Currency = meter, terms.Currency, terms.Currency
			f.Reported = append(f.Reported, reported)
		}
	}
}
