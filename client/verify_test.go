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
// testdata/statements.jsonl. TestStatementVectors of ../billing writes that file.
type vectorResult struct {
	Unnoticed []string       `json:"unnoticed"` // numbers that can change without changing a recomputed amount
	Refused   []vectorChange `json:"refused,omitempty"`
}

// vectorChange is a change of a statement's text, and the resulting error message.
type vectorChange struct {
	Replace string `json:"replace"`
	With    string `json:"with"`
	Message string `json:"message"`
}

// TestVerifyStatement verifies real statements, and copies of them with one changed number. The tests of
// the other clients require the same results.
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
		results = append(results, vectorResult{Unnoticed: unnoticed(t, line)})
	}
	first, _, _ := strings.Cut(string(statements), "\n")
	results[0].Refused = refusals(t, first)
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

// refusals applies each change to the statement, and returns the changes with their error messages.
func refusals(t *testing.T, body string) (all []vectorChange) {
	for _, c := range []vectorChange{
		{Replace: `"name":"charge","amount":`, With: `"name":"charge","amount":1`},
		{Replace: `"name":"base_price"`, With: `"name":"base_price_of_2030"`},
		{Replace: `"name":"base_price"`, With: `"name":"minimum_charge"`},
		{Replace: `"name":"base_price","amount":`, With: `"name":"base_price","amount":1e2,"was":`},
		{Replace: `"name":"overage_rate"`, With: `"name":"unit_price"`},
		{Replace: `"name":"exact_charge"`, With: `"name":"part"`},
		{Replace: `"unit":"units"`, With: `"unit":"EUR"`},
		{Replace: `"steps":[`, With: `"steps":[null,`},
		{Replace: `"rounded_to":2`, With: `"rounded_to":-2`},
		{Replace: `"rounded_to":2`, With: `"rounded_to":2.5`},
		{Replace: `"usage.statement"`, With: `"ping"`},
	} {
		changed := strings.Replace(body, c.Replace, c.With, 1)
		err := client.VerifyStatement([]byte(changed))
		if changed == body || err == nil {
			t.Fatalf("a statement with %s is not refused", c.With)
		}
		c.Message = err.Error()
		all = append(all, c)
	}
	return all
}

func TestVerifyStatementRefusesOtherTexts(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "[]", `{"type":"usage.statement","data":{"meters":[{"steps":[{"name":"tier_units","amount":1,"unit":"units"}]}]}}`} {
		if err := client.VerifyStatement([]byte(body)); err == nil {
			t.Errorf("%q is verified", body)
		}
	}
}
