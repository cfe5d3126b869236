package client_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/big"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/odometer-metering/odometer/client"
)

//go:generate go test -run TestVerifyStatement -update

var update = flag.Bool("update", false, "write testdata/statements.json")

// vectorResult is the result that each client must have for the statement on the same line of
// testdata/statements.jsonl. TestStatementVectorsAreCurrent of ../billing writes that file.
type vectorResult struct {
	Unnoticed []string      `json:"unnoticed"`         // numbers that can change without changing a recomputed amount
	Removable []string      `json:"removable"`         // steps without parts that can be removed
	Refused   []wrongVector `json:"refused,omitempty"` // wrong statements
}

// wrongVector contains changes of a statement's text, and the resulting error message.
type wrongVector struct {
	Changes [][2]string `json:"changes"` // each replaces all occurrences of the first text with the second one
	Message string      `json:"message"`
}

// TestVerifyStatement verifies real statements, and wrong copies of them: with one changed number, with one
// removed or repeated step, and with changes of several numbers that agree with each other. The tests of the
// other clients require the same results.
func TestVerifyStatement(t *testing.T) {
	t.Parallel()
	statements, err := os.ReadFile("testdata/statements.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	var results []vectorResult
	for line := range strings.Lines(string(statements)) {
		if err := client.VerifyStatement([]byte(line)); err != nil {
			t.Errorf("%s: %s", err, line)
		}
		results = append(results, vectorResult{unnoticed(t, line), removable(t, line), refusals(t, line)})
	}
	if len(results) == 0 || results[0].Refused == nil {
		t.Fatal("no wrong statements of the first statement")
	}
	encoded, err := json.MarshalIndent(results, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	encoded = append(encoded, '\n')
	if *update {
		if err := os.WriteFile("testdata/statements.json", encoded, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile("testdata/statements.json"); err != nil || string(text) != string(encoded) {
		t.Errorf("testdata/statements.json is not current (%v): make generate", err)
	}
}

var vectorNumber = regexp.MustCompile(`(?:"name":"(\w+)",)?"(usage|unit_price|amount|event_count|above|up_to)":(-?[0-9.]+)`)

// unnoticed returns the numbers of a statement that can change without failing verification: the position
// of each, and its step or field. It changes one number at a time, by one unit of the last digit.
func unnoticed(t *testing.T, body string) (all []string) {
	all = []string{}
	for n, at := range vectorNumber.FindAllStringSubmatchIndex(body, -1) {
		changed := body[:at[6]] + increased(body[at[6]:at[7]]) + body[at[7]:]
		err := client.VerifyStatement([]byte(changed))
		if _, noticed := errors.AsType[*client.StatementError](err); noticed {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		name := body[at[4]:at[5]]
		if at[2] >= 0 {
			name = body[at[2]:at[3]]
		}
		if !slices.Contains(withoutEffect, name) {
			t.Errorf("a change of %s at %d is not noticed in %s", name, at[6], body)
		}
		all = append(all, fmt.Sprintf("%d %s", n, name))
	}
	return all
}

// increased returns a number plus one unit of its last digit.
func increased(number string) string {
	whole, fraction, _ := strings.Cut(number, ".")
	digits, _ := new(big.Int).SetString(whole+fraction, 10)
	return new(big.Rat).SetFrac(digits.Add(digits, big.NewInt(1)), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(len(fraction))), nil)).FloatString(len(fraction))
}

// withoutEffect lists the steps and fields that can change without changing a recomputed amount. These are
// steps that verification uses as stated, event counts, tier bounds, and numbers of lines without steps.
var withoutEffect = []string{
	"above", "amount", "base_price", "closed_charge", "event_count", "fixed_fee", "included_units", "maximum_charge", "minimum_charge", "only_reported", "overage_rate",
	"package_price", "package_size", "per_units", "percent", "price_rate", "priced_units", "tier_unit_price", "unit_price", "up_to", "usage",
}

var vectorLeaf = regexp.MustCompile(`\{"name":"(\w+)"[^{}]*\}`)

// removable returns the steps without parts that can be removed without failing verification: the position of
// each, and its name. It checks that no step can be repeated, except a part of 0.
func removable(t *testing.T, body string) (all []string) {
	all = []string{}
	for n, at := range vectorLeaf.FindAllStringSubmatchIndex(body, -1) {
		leaf, name := body[at[0]:at[1]], body[at[2]:at[3]]
		if repeated := body[:at[1]] + "," + leaf + body[at[1]:]; client.VerifyStatement([]byte(repeated)) == nil && !strings.Contains(leaf, `"amount":0,`) {
			t.Errorf("a repeated %s at %d is not noticed in %s", name, at[0], body)
		}
		if client.VerifyStatement([]byte(withoutItem(body[:at[0]], body[at[1]:]))) != nil {
			continue
		}
		if !slices.Contains(dispensable, name) && !strings.Contains(leaf, `"amount":0,`) {
			t.Errorf("a removed %s at %d is not noticed in %s", name, at[0], body)
		}
		all = append(all, fmt.Sprintf("%d %s", n, name))
	}
	return all
}

// withoutItem joins the text before and after a removed item of a JSON array.
func withoutItem(before, after string) string {
	if rest, found := strings.CutPrefix(after, ","); found {
		return before + rest
	}
	return strings.TrimSuffix(before, ",") + after
}

// dispensable lists fields that a price can lack, and reported_units, which rounding need not change.
var dispensable = []string{"maximum_charge", "minimum_charge", "per_units", "reported_units"}

// wrongStatements has changes of the statements by customer_external_id. The changes of one statement agree with
// each other: only the rule that they break refuses them.
var wrongStatements = map[string][][][2]string{
	"": {
		{{`"name":"charge","amount":`, `"name":"charge","amount":1`}},
		{{`"name":"base_price"`, `"name":"base_price_of_2030"`}},
		{{`"name":"base_price"`, `"name":"minimum_charge"`}},
		{{`"name":"base_price","amount":`, `"name":"base_price","amount":1e2,"was":`}},
		{{`"name":"overage_rate"`, `"name":"unit_price"`}},
		{{`"name":"exact_charge"`, `"name":"part"`}},
		{{`"unit":"units"`, `"unit":"EUR"`}},
		{{`"steps":[`, `"steps":[null,`}},
		{{`"rounded_to":2`, `"rounded_to":-2`}},
		{{`"rounded_to":2`, `"rounded_to":2.5`}},
		{{`"usage.statement"`, `"ping"`}},
	},
	"cents": {
		{{`10.51,"unit":"USD"},{"name":"base_price"`, `11,"unit":"USD","rounded_to":0},{"name":"base_price"`}, {`"exact_charge","amount":10.51`, `"exact_charge","amount":11`}, {`"charge","amount":10.51`, `"charge","amount":11`}, {`10.51,"currency"`, `11,"currency"`}},
		{{`"exact_charge","amount":10.51,"unit":"USD"`, `"exact_charge","amount":11,"unit":"USD","rounded_to":0`}, {`"charge","amount":10.51`, `"charge","amount":11`}, {`10.51,"currency"`, `11,"currency"`}},
		{{`"name":"charge","amount":10.51,"unit":"USD","rounded_to":2`, `"name":"charge","amount":11,"unit":"USD","rounded_to":0`}, {`10.51,"currency"`, `11,"currency"`}},
		{{`"unit_charges","amount":10.51,"unit":"USD"`, `"unit_charges","amount":10.5,"unit":"USD","rounded_to":1`}, {`10.51`, `10.5`}},
		{{`"name":"charge","amount":10.51,"unit":"USD"`, `"name":"charge","amount":10.51,"unit":"units"`}},
		{{`"rounded_to":2}]`, `"rounded_to":2},{"name":"trial","amount":10.51,"unit":"USD"},{"name":"quantity","amount":10,"unit":"units"},{"name":"amount","amount":0,"unit":"USD"}]`}, {`10.51,"currency"`, `0,"currency"`}},
		{{`10.51`, `15.51`}, {`"unit_charges","amount":15.51`, `"unit_charges","amount":10.51`}, {`{"name":"usage_charge"`, `{"name":"flat_fees","amount":5,"unit":"USD"},{"name":"usage_charge"`}},
		{{`"meters":[`, `"meters":[{"meter_id":"mtr_1","meter_slug":"calls","usage":10,"unit_price":1.051,"amount":10.51,"currency":"USD"},`}},
	},
	"yen": {
		{{`"name":"charge","amount":10,"unit":"JPY","rounded_to":0`, `"name":"charge","amount":10.4,"unit":"JPY"`}, {`"amount":10,"currency"`, `"amount":10.4,"currency"`}},
		{{`"name":"charge","amount":10,"unit":"JPY","rounded_to":0`, `"name":"charge","amount":10.4,"unit":"JPY","rounded_to":2`}, {`"amount":10,"currency"`, `"amount":10.4,"currency"`}},
	},
	"quotient": {
		{
			{`0.01499999999999999999999933,"unit":"USD","rounded_to":26`, `0.015,"unit":"USD","rounded_to":16`}, {`0.01499999999999999999999933`, `0.015`},
			{`"charge","amount":0.01,`, `"charge","amount":0.02,`}, {`0.01,"currency"`, `0.02,"currency"`},
		},
	},
	"graduated": {
		{
			{`"amount":20,"unit":"USD","tier":1,"up_to":10,"steps":[{"name":"tier_units","amount":10`, `"amount":30,"unit":"USD","tier":1,"up_to":15,"steps":[{"name":"tier_units","amount":15`},
			{`"amount":10,"unit":"USD","tier":2,"above":10,"up_to":20,"steps":[{"name":"tier_units","amount":10`, `"amount":5,"unit":"USD","tier":2,"above":10,"up_to":15,"steps":[{"name":"tier_units","amount":5`},
			{`"amount":35`, `"amount":40`}, {`"amount":44`, `"amount":49`},
		},
		{{`"tier":3,"above":20`, `"tier":2,"above":20`}},
		{{`"tier":1,"up_to":10`, `"tier":0,"up_to":10`}},
		{{`{"name":"tier_flat_fee","amount":3`, `{"name":"tier_flat_fee","amount":5,"unit":"USD","price_version":1,"tier":1},{"name":"tier_flat_fee","amount":3`}, {`"amount":9`, `"amount":14`}, {`"amount":44`, `"amount":49`}},
	},
	"volume": {
		{
			{`{"name":"tier_flat_fee"`, `{"name":"tier_flat_fee","amount":5,"unit":"USD","tier":1},{"name":"tier_flat_fee","amount":3,"unit":"USD","tier":2},{"name":"tier_flat_fee"`},
			{`"flat_fees","amount":1`, `"flat_fees","amount":9`}, {`"amount":16`, `"amount":24`},
		},
		{{`"amount":1,"unit":"USD","price_version":1,"tier":3`, `"amount":5,"unit":"USD","price_version":1,"tier":1`}, {`"flat_fees","amount":1`, `"flat_fees","amount":5`}, {`"amount":16`, `"amount":20`}},
	},
	"dimensions": {
		{
			{`"matched_units","amount":7,"unit":"units","event_count":10`, `"matched_units","amount":7,"unit":"units","event_count":1000`},
			{`"fixed_fees","amount":3,"unit":"USD","event_count":10`, `"fixed_fees","amount":300,"unit":"USD","event_count":1000`}, {`"amount":3.7`, `"amount":300.7`}, {`"amount":19.7`, `"amount":316.7`},
		},
		{
			{`"amount":7,"unit":"units","event_count":10`, `"amount":7,"unit":"units","event_count":1000`},
			{`"fixed_fees","amount":3,"unit":"USD","event_count":10`, `"fixed_fees","amount":300,"unit":"USD","event_count":1000`}, {`"amount":3.7`, `"amount":300.7`}, {`"amount":19.7`, `"amount":316.7`},
		},
		{{`"unrated_units","amount":1,"unit":"units","event_count":1`, `"unrated_units","amount":1,"unit":"units","event_count":5`}},
		{{`,"event_count":2,"steps":[{"name":"dimension_units","amount":11,"unit":"units","event_count":2,"dimension":{"size":"small"}}]`, `,"event_count":2`}},
		{
			{`{"name":"dimension_charge","amount":16,"unit":"USD","dimension_price":2,"steps":[`, `{"name":"dimension_charge","amount":4,"unit":"USD","dimension_price":2,"steps":[` +
				`{"name":"matched_units","amount":5,"unit":"units","event_count":1,"steps":[{"name":"dimension_units","amount":5,"unit":"units","event_count":1,"dimension":{"size":"small"}}]},` +
				`{"name":"included_units","amount":3,"unit":"units"},{"name":"overage_units","amount":2,"unit":"units"},{"name":"overage_rate","amount":2,"unit":"USD"},{"name":"overage_charge","amount":4,"unit":"USD"}]},` +
				`{"name":"dimension_charge","amount":6,"unit":"USD","dimension_price":2,"steps":[`},
			{`"amount":11,"unit":"units","event_count":2`, `"amount":6,"unit":"units","event_count":1`}, {`"overage_units","amount":8`, `"overage_units","amount":3`},
			{`"overage_charge","amount":16`, `"overage_charge","amount":6`}, {`"amount":19.7`, `"amount":13.7`},
		},
	},
	"late": {
		{
			{`,{"name":"closed_units","amount":50,"unit":"units"},{"name":"closed_charge","amount":5.6,"unit":"USD"},{"name":"quantity","amount":20,"unit":"units"},{"name":"amount","amount":2.9,"unit":"USD"}`, ``},
			{`"usage":20,"unit_price":0.1,"amount":2.9`, `"usage":70,"unit_price":0.1,"amount":8.5`},
		},
		{{`,{"name":"closed_charge","amount":5.6,"unit":"USD"}`, ``}, {`"amount":2.9`, `"amount":8.5`}},
		{
			{`"total_usage","amount":70,"unit":"units","event_count":5`, `"total_usage","amount":70,"unit":"units","event_count":50`}, {`"fixed_fees","amount":1.5,"unit":"USD","event_count":5`, `"fixed_fees","amount":15,"unit":"USD","event_count":50`},
			{`"amount":8.5`, `"amount":22`}, {`"amount":2.9`, `"amount":16.4`},
		},
		{{`{"name":"quantity"`, `{"name":"unbilled_charge","amount":1,"unit":"USD"},{"name":"quantity"`}, {`"amount":2.9`, `"amount":1.9`}},
		{{`"amount":2.9,"unit":"USD"}`, `"amount":2.9,"unit":"USD"},{"name":"adjustment","amount":5,"unit":"USD"},{"name":"amount_with_adjustments","amount":7.9,"unit":"USD"}`}, {`"amount":2.9,"currency"`, `"amount":7.9,"currency"`}},
		{
			{`{"name":"quantity","amount":20`, `{"name":"elsewhere_units","amount":5,"unit":"units","steps":[{"name":"part","amount":5,"unit":"units"}]},{"name":"quantity","amount":15`},
			{`"usage":20`, `"usage":15`},
		},
		{
			{`{"name":"quantity","amount":20`, `{"name":"elsewhere_units","amount":5,"unit":"units","steps":[{"name":"part","amount":5,"unit":"units"}]},{"name":"billed_elsewhere","amount":1,"unit":"USD"},{"name":"quantity","amount":15`},
			{`"usage":20`, `"usage":15`}, {`"amount":2.9`, `"amount":1.9`},
		},
		{
			{`{"name":"quantity","amount":20`, `{"name":"elsewhere_units","amount":5,"unit":"units","rounded_to":0,"steps":[{"name":"part","amount":4.6,"unit":"units"}]},` +
				`{"name":"billed_elsewhere","amount":1,"unit":"USD","steps":[{"name":"part","amount":1,"unit":"USD"}]},{"name":"quantity","amount":15`},
			{`"usage":20`, `"usage":15`}, {`"amount":2.9`, `"amount":1.9`},
		},
	},
	"late dimensions": {
		{
			{`"amount":8,"unit":"units","event_count":0`, `"amount":80,"unit":"units","event_count":0`}, {`"charged_units","amount":8`, `"charged_units","amount":80`}, {`"amount":0.8`, `"amount":8`},
			{`"amount":16.8`, `"amount":24`}, {`"amount":0.1`, `"amount":7.3`},
		},
		{
			{`"amount":8,"unit":"units","event_count":0`, `"amount":8,"unit":"units","event_count":5`}, {`"fixed_fees","amount":0,"unit":"USD","event_count":0`, `"fixed_fees","amount":1.5,"unit":"USD","event_count":5`},
			{`"usage_charge","amount":0.8`, `"usage_charge","amount":2.3`}, {`"dimension_charge","amount":0.8`, `"dimension_charge","amount":2.3`}, {`"amount":16.8`, `"amount":18.3`}, {`"amount":0.1`, `"amount":1.6`},
		},
	},
	"late units": {
		{
			{`"rounded_to":2},{"name":"included_units"`, `"rounded_to":2,"event_count":5},{"name":"included_units"`},
			{`"amount":7,"unit":"USD"},{"name":"fixed_fee","amount":0.3,"unit":"USD","price_version":1},{"name":"fixed_fees","amount":0,"unit":"USD","event_count":0},{"name":"usage_charge","amount":7`, `"amount":7,"unit":"USD"},{"name":"fixed_fee","amount":0.3,"unit":"USD","price_version":1},{"name":"fixed_fees","amount":1.5,"unit":"USD","event_count":5},{"name":"usage_charge","amount":8.5`},
			{`"exact_charge","amount":7`, `"exact_charge","amount":8.5`}, {`"charge","amount":7`, `"charge","amount":8.5`}, {`"amount","amount":2`, `"amount","amount":3.5`}, {`"amount":2,"currency"`, `"amount":3.5,"currency"`},
		},
	},
}

// refusals applies the changes of wrongStatements to a statement, and returns them with the error messages.
func refusals(t *testing.T, body string) (all []wrongVector) {
	var statement struct {
		Data struct {
			Customer string `json:"customer_external_id"`
			Sequence int    `json:"sequence"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(body), &statement); err != nil {
		t.Fatal(err)
	}
	name := statement.Data.Customer
	if name == "acme" && statement.Data.Sequence == 1 {
		name = ""
	}
	for _, changes := range wrongStatements[name] {
		changed := strings.TrimSuffix(body, "\n")
		for _, c := range changes {
			before := changed
			if changed = strings.ReplaceAll(changed, c[0], c[1]); changed == before {
				t.Errorf("%s does not contain %s", before, c[0])
			}
		}
		err := client.VerifyStatement([]byte(changed))
		if err == nil {
			t.Errorf("a wrong statement is verified: %q in %s", changes, changed)
			continue
		}
		all = append(all, wrongVector{changes, err.Error()})
	}
	return all
}

func TestVerifyStatementRefusesMalformedStatements(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "[]", `{"type":"usage.statement","data":{"meters":[{"steps":[{"name":"tier_units","amount":1,"unit":"units"}]}]}}`} {
		if err := client.VerifyStatement([]byte(body)); err == nil {
			t.Errorf("%q is verified", body)
		}
	}
}
