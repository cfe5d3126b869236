package billing_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/dev/lives"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/webhook"
)

//go:generate go test -run TestStatementVectors -update

const statementVectors = "../client/testdata/statements.jsonl"

// TestStatementVectors checks that the stored statements, which the tests of the three clients verify, equal the
// statements that the current code creates.
func TestStatementVectors(t *testing.T) {
	t.Parallel()
	var statements bytes.Buffer
	seen := make(map[string]int)
	for seed := range uint64(20) {
		body := statementVector(t, seed)
		require.NoError(t, client.VerifyStatement(body), "seed %d: %s", seed, body)
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

// inNoStatement lists the steps that only GET /v1/billing/explain returns.
var inNoStatement = []string{billing.StepUnbilledUnits, billing.StepUnbilled, billing.StepAdjustment, billing.StepAll}

// TestEachClientKnowsEachStep checks that each client lists every step, because an unknown step fails a client's
// verification of a statement.
func TestEachClientKnowsEachStep(t *testing.T) {
	t.Parallel()
	for _, file := range []string{"verify_formulas.go", "typescript/statements.ts", "python/src/odometer_client/statements.py"} {
		text, err := os.ReadFile("../client/" + file)
		require.NoError(t, err)
		for _, name := range billing.StepNames() {
			require.Regexp(t, `(?m)^\s*\[?"`+name+`"[:,]`, string(text), "%s does not know the step %s", file, name)
		}
	}
}

// statementVector returns the message body of February's statement for three meters. January is closed and has late
// usage.
func statementVector(t *testing.T, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 12))
	f := atReceiver(second, knownOf(february.Start.AddDate(0, 0, 20), billing.Period{Range: january, Complete: true}, billing.Period{Range: february}))
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
	plan := billing.NewBooks(f).Plan()
	require.NotEmpty(t, plan.Reports)
	report := plan.Reports[0]
	if rng.IntN(8) == 0 { // as if an operator had excluded the first meter
		report.Lines[0].Working = nil
	}
	framed, err := webhook.NewProvider(nil).Frame(billing.Message{
		Report: report, ID: uuid.UUID{1}, TenantID: 1, CustomerID: 1, CustomerExternalID: "acme", Sequence: int64(seed) + 1,
		Periods: []metering.Range{january, february}, Now: f.Now,
	})
	require.NoError(t, err)
	return framed.Body
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
