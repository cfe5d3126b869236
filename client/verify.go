package client

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
)

// VerifyStatement recomputes each amount of a usage.statement message from the steps of its line. It
// returns a *StatementError for the first difference, and for a step that this version of the client does
// not know. Verify the signature of the message first.
//
// The rules are in docs/api/clients.md: the order of steps, the unit, the decimals and the number of events
// of each step, and the formulas. A line without steps repeats an earlier statement and is not verified.
// Steps without a formula are not recomputed: usage, fields of the price, lines of a provider's price, and
// previously billed units and amounts.
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
	verifyAll := func(kind string, lines []statementLine) {
		subjects := make(map[lineSubject]bool)
		for i := range lines {
			line = lines[i]
			path, subject := fmt.Sprintf("%s[%d]", kind, i), lineSubject{line.MeterID, line.Period.Start}
			if subjects[subject] {
				fail(path+"/meter_id", json.Number(line.MeterID), "an earlier line has the same meter and period")
			}
			subjects[subject] = true
			line.verify(kind, path)
		}
	}
	verifyAll("meters", message.Data.Meters)
	verifyAll("adjustments", message.Data.Adjustments)
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

// lineSubject identifies the usage that a line bills. A statement bills it once.
type lineSubject struct{ meterID, periodStart string }

type statementLine struct {
	Period struct {
		Start string `json:"start"`
	} `json:"period"` // only of an adjustment
	MeterID   string          `json:"meter_id"`
	MeterSlug string          `json:"meter_slug"`
	Currency  string          `json:"currency"`
	Usage     json.Number     `json:"usage"`
	UnitPrice json.Number     `json:"unit_price"`
	Amount    json.Number     `json:"amount"`
	Steps     []statementStep `json:"steps"`
}

type statementStep struct {
	Name           string          `json:"name"`
	Amount         json.Number     `json:"amount"`
	Unit           string          `json:"unit"`
	RoundedTo      json.Number     `json:"rounded_to"`
	EventCount     json.Number     `json:"event_count"`
	DimensionPrice json.Number     `json:"dimension_price"`
	Tier           json.Number     `json:"tier"`
	Above          json.Number     `json:"above"`
	UpTo           json.Number     `json:"up_to"`
	Steps          []statementStep `json:"steps"`

	path          string
	stated, exact *big.Rat // exact: the value before rounding
	events        *big.Rat
	parts         breakdown
}

// breakdown contains verified steps. outer is the breakdown that contains the owner of these steps.
type breakdown struct {
	steps []*statementStep
	owner *statementStep
	outer *breakdown
}

// verify recomputes the steps in order, and then the fields of the line. kind is the list of the line, which
// decides the order of its steps.
func (l statementLine) verify(kind, path string) {
	if len(l.Steps) == 0 {
		return
	}
	b := l.verifySteps(kind, l.Steps, path, breakdown{})
	compare(path+"/usage", l.Usage, b.get("quantity", "reported_units", "total_usage", "usage").stated)
	compare(path+"/unit_price", l.UnitPrice, unitPrice(b))
	compare(path+"/amount", l.Amount, b.get("amount", "charge").stated)
}

// verifySteps recomputes the steps of a line, or the parts of a step. list is the kind of the line, or the
// name of that step.
func (l statementLine) verifySteps(list string, steps []statementStep, path string, b breakdown) breakdown {
	for i := range steps {
		s := &steps[i]
		s.path = fmt.Sprintf("%s/%s[%d]", path, s.Name, i)
		if _, known := formulas[s.Name]; !known {
			fail(s.path, s.Amount, "the step is unknown, because this client is older than the statement")
		}
	}
	if names := namesOf(steps); !forms[list].MatchString(names) {
		fail(path+"/steps", json.Number(strings.TrimSuffix(names, ";")), "a step is missing, repeated or in another order")
	}
	for i := range steps {
		s := &steps[i]
		if unit := s.expectedUnit(b.owner, l.Currency); s.Unit != unit {
			panic(&StatementError{Path: s.path + "/unit", Stated: s.Unit, Recomputed: unit})
		}
		s.stated = parseDecimal(s.path, s.Amount)
		s.events = s.number("event_count", s.EventCount)
		if len(s.Steps) > 0 {
			s.parts = l.verifySteps(s.Name, s.Steps, s.path, breakdown{owner: s, outer: &b})
		}
		s.exact = s.stated
		if formula := formulas[s.Name]; formula != nil {
			s.exact = formula(s, b)
		}
		compare(s.path, s.Amount, s.rounded(b, l.Currency))
		if events := s.expectedEvents(b); events != nil {
			compare(s.path+"/event_count", cmp.Or(s.EventCount, "0"), events)
		}
		b.steps = append(b.steps, s)
	}
	return b
}

// namesOf returns the names of the steps in the form that forms match. A step with parts ends with a colon.
func namesOf(steps []statementStep) string {
	var names strings.Builder
	for i := range steps {
		names.WriteString(steps[i].Name)
		if len(steps[i].Steps) > 0 {
			names.WriteString(":")
		}
		names.WriteString(";")
	}
	return names.String()
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

// get returns the step with the first name that occurs. forms guarantee that there is one.
func (b breakdown) get(names ...string) *statementStep { return b.find(names...) }

// sum returns the sum of the amounts of all steps with the names.
func (b breakdown) sum(names ...string) *big.Rat {
	total := new(big.Rat)
	for _, s := range b.steps {
		if slices.Contains(names, s.Name) {
			total.Add(total, s.stated)
		}
	}
	return total
}

// sumEvents returns the sum of the numbers of events of all steps with the names.
func (b breakdown) sumEvents(names ...string) *big.Rat {
	total := new(big.Rat)
	for _, s := range b.steps {
		if slices.Contains(names, s.Name) {
			total.Add(total, s.events)
		}
	}
	return total
}

// number parses a number of the step other than its amount. A missing number is 0.
func (s *statementStep) number(name string, n json.Number) *big.Rat {
	if n == "" {
		return new(big.Rat)
	}
	return parseDecimal(s.path+"/"+name, n)
}

// compare panics with a *StatementError if a stated number differs from the recomputed one.
func compare(path string, stated json.Number, exact *big.Rat) {
	if parseDecimal(path, stated).Cmp(exact) != 0 {
		panic(&StatementError{Path: path, Stated: string(stated), Recomputed: formatDecimal(exact)})
	}
}

// fail panics with a *StatementError about a value that cannot be recomputed.
func fail(path string, stated json.Number, reason string) {
	panic(&StatementError{Path: path, Stated: string(stated), Reason: reason})
}

var plainDecimal = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`)

// parseDecimal parses a number in plain digits. It panics with a *StatementError for any other notation.
func parseDecimal(path string, n json.Number) *big.Rat {
	if !plainDecimal.MatchString(string(n)) {
		fail(path, n, "it is not a plain decimal")
	}
	value, _ := new(big.Rat).SetString(string(n))
	return value
}

// roundHalfEven returns x, rounded half to even to the number of digits after the decimal point.
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
