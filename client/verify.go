package client

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// VerifyStatement recomputes each amount of a usage.statement message from the steps of its line. It
// returns a *StatementError for the first difference, and for a step that this version of the client does
// not know. Verify the signature of the message first.
//
// A line without steps repeats an earlier statement and is not verified. Steps without a formula are not
// recomputed: usage, fields of the price, lines of a provider's price, and previously billed units and
// amounts.
func VerifyStatement(body []byte) (err error) {
	var message struct {
		Type string `json:"type"`
		Data struct {
			Meters      []statementLine `json:"meters"`
			Adjustments []statementLine `json:"adjustments"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &message); err != nil {
		return fmt.Errorf("the statement is no JSON: %w", err)
	}
	if message.Type != "usage.statement" {
		return fmt.Errorf("the type of the message is %q, not usage.statement", message.Type)
	}
	var line statementLine
	defer func() {
		switch failure := recover().(type) {
		case nil:
		case *StatementError:
			failure.MeterSlug, err = line.MeterSlug, failure
		default:
			panic(failure)
		}
	}()
	for i := range message.Data.Meters {
		line = message.Data.Meters[i]
		line.verify(fmt.Sprintf("meters[%d]", i))
	}
	for i := range message.Data.Adjustments {
		line = message.Data.Adjustments[i]
		line.verify(fmt.Sprintf("adjustments[%d]", i))
	}
	return nil
}

// StatementError is the first difference between a statement and the recomputed values.
type StatementError struct {
	Path       string // with the positions of steps, such as meters[0]/unit_charges[6]/tier[1]
	MeterSlug  string
	Stated     string
	Recomputed string // "" if a step is missing or unknown
	Reason     string // why the value could not be recomputed
}

func (e *StatementError) Error() string {
	if e.Reason != "" {
		return fmt.Sprintf("%s (%s) is %s, but cannot be recomputed: %s", e.Path, e.MeterSlug, e.Stated, e.Reason)
	}
	return fmt.Sprintf("%s (%s) is %s, but recomputed it is %s", e.Path, e.MeterSlug, e.Stated, e.Recomputed)
}

type statementLine struct {
	MeterSlug string          `json:"meter_slug"`
	Currency  string          `json:"currency"`
	Usage     json.Number     `json:"usage"`
	UnitPrice json.Number     `json:"unit_price"`
	Amount    json.Number     `json:"amount"`
	Steps     []statementStep `json:"steps"`
}

type statementStep struct {
	Name       string          `json:"name"`
	Amount     json.Number     `json:"amount"`
	Unit       string          `json:"unit"`
	RoundedTo  json.Number     `json:"rounded_to"`
	EventCount json.Number     `json:"event_count"`
	Tier       json.Number     `json:"tier"`
	Above      json.Number     `json:"above"`
	UpTo       json.Number     `json:"up_to"`
	Steps      []statementStep `json:"steps"`

	path          string
	stated, exact *big.Rat // exact: the value before rounding
	parts         breakdown
}

// breakdown contains verified steps. outer is the breakdown that contains the owner of these steps.
type breakdown struct {
	steps []*statementStep
	at    *statementStep // the step being verified
	owner *statementStep
	outer *breakdown
}

// verify recomputes the steps in order, and then the fields of the line.
func (l statementLine) verify(path string) {
	if len(l.Steps) == 0 {
		return
	}
	b := l.verifySteps(l.Steps, path, breakdown{})
	compare(path+"/usage", l.Usage, b.get("quantity", "reported_units", "total_usage", "usage").stated)
	compare(path+"/unit_price", l.UnitPrice, unitPrice(b))
	compare(path+"/amount", l.Amount, b.get("amount_with_adjustments", "amount", "charge").stated)
}

func (l statementLine) verifySteps(steps []statementStep, path string, b breakdown) breakdown {
	b.at = b.owner
	for i := range steps {
		s := &steps[i]
		s.path = fmt.Sprintf("%s/%s[%d]", path, s.Name, i)
		formula, known := formulas[s.Name]
		if !known {
			fail(s.path, s.Amount, "the step is unknown, because this client is older than the statement")
		}
		if s.Unit != "units" && s.Unit != "packages" && s.Unit != "percent" && s.Unit != l.Currency {
			panic(&StatementError{Path: s.path + "/unit", Stated: s.Unit, Recomputed: l.Currency})
		}
		s.stated = parseDecimal(s.path, s.Amount)
		s.parts = l.verifySteps(s.Steps, s.path, breakdown{owner: s, outer: &b})
		b.at, s.exact = s, s.stated
		if formula != nil {
			s.exact = formula(s, b)
			compare(s.path, s.Amount, s.rounded())
		}
		b.steps = append(b.steps, s)
	}
	return b
}

// find returns the last step with the first name that occurs, or nil.
func (b breakdown) find(names ...string) (found *statementStep) {
	for _, name := range names {
		for _, s := range b.steps {
			if s.Name == name {
				found = s
			}
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// get returns the step with the first name that occurs. A missing step is an error.
func (b breakdown) get(names ...string) *statementStep {
	s := b.find(names...)
	if s == nil {
		fail(b.at.path, b.at.Amount, "the step "+names[0]+" is missing")
	}
	return s
}

// sum returns the sum of the amounts of all steps with the names.
func (b breakdown) sum(names ...string) *big.Rat {
	total := new(big.Rat)
	for _, s := range b.steps {
		for _, name := range names {
			if s.Name == name {
				total.Add(total, s.stated)
			}
		}
	}
	return total
}

var decimals = regexp.MustCompile(`^[0-9]{1,2}$`)

// rounded returns the exact amount, rounded to the decimals that the step states.
func (s *statementStep) rounded() *big.Rat {
	if s.RoundedTo == "" {
		return s.exact
	}
	if !decimals.MatchString(string(s.RoundedTo)) {
		fail(s.path+"/rounded_to", s.RoundedTo, "it is no number of decimals")
	}
	digits, _ := strconv.Atoi(string(s.RoundedTo))
	return roundHalfEven(s.exact, digits)
}

// number parses a number of the step other than its amount. A missing number is 0.
func (s *statementStep) number(name string, n json.Number) *big.Rat {
	if n == "" {
		return new(big.Rat)
	}
	return parseDecimal(s.path+"/"+name, n)
}

func compare(path string, stated json.Number, exact *big.Rat) {
	if parseDecimal(path, stated).Cmp(exact) != 0 {
		panic(&StatementError{Path: path, Stated: string(stated), Recomputed: formatDecimal(exact)})
	}
}

func fail(path string, stated json.Number, reason string) {
	panic(&StatementError{Path: path, Stated: string(stated), Reason: reason})
}

var plainDecimal = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

func parseDecimal(path string, n json.Number) *big.Rat {
	if !plainDecimal.MatchString(string(n)) {
		fail(path, n, "it is no plain decimal")
	}
	value, _ := new(big.Rat).SetString(string(n))
	return value
}

func roundHalfEven(x *big.Rat, digits int) *big.Rat {
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(digits)), nil))
	scaled := new(big.Rat).Mul(x, scale)
	whole, rest := new(big.Int).DivMod(scaled.Num(), scaled.Denom(), new(big.Int))
	half := rest.Lsh(rest, 1).Cmp(scaled.Denom())
	if half > 0 || half == 0 && whole.Bit(0) == 1 {
		whole.Add(whole, big.NewInt(1))
	}
	return new(big.Rat).Quo(new(big.Rat).SetInt(whole), scale)
}

// formatDecimal returns a number with at most 40 decimals.
func formatDecimal(x *big.Rat) string {
	text := roundHalfEven(x, 40).FloatString(40)
	return strings.TrimSuffix(strings.TrimRight(text, "0"), ".")
}
