package client

import (
	"cmp"
	"encoding/json"
	"math/big"
	"regexp"
	"strconv"
	"strings"
)

// Parts of forms.
const (
	modelForm = "included_units (overage_units overage_rate overage_charge | charged_units (package_size packages package_price" +
		" | percent unit_charges (fixed_fee fixed_fees)? | unit_price unit_charges per_units? | unit_charges: per_units? flat_fees:?) usage_charge)"
	chargeForm = "(provider_charge: | (" + modelForm + " | dimension_charge:* default_charge:? unrated_units:? usage_charge)" +
		" base_price minimum_charge? maximum_charge? exact_charge)"
	closedForm    = "closed_units closed_charge (only_reported_units only_reported)?"
	elsewhereForm = "elsewhere_units: (billed_elsewhere | billed_elsewhere:)"
)

// forms has the order of the steps of a line in meters and in adjustments, and of the parts of each step that
// has parts. A name with a colon is a step with parts. In a trial, no other connection bills amounts.
//
//nolint:gochecknoglobals // a table
var forms = map[string]*regexp.Regexp{
	"meters": compileForm("usage reported_units? " + chargeForm +
		" (charge (" + elsewhereForm + " quantity amount)? | trial charge (elsewhere_units: quantity amount)?)"),
	"adjustments": compileForm("usage late_usage total_usage reported_units? " + chargeForm +
		" (charge " + closedForm + " (" + elsewhereForm + ")? | trial charge " + closedForm + " elsewhere_units:?) quantity amount"),
	"dimension_charge": compileForm("(matched_units | matched_units:) " + modelForm),
	"default_charge":   compileForm("(matched_units | matched_units:) " + modelForm),
	"matched_units":    compileForm("dimension_units+"),
	"unrated_units":    compileForm("dimension_units+"),
	"unit_charges":     compileForm("tier:+"),
	"tier":             compileForm("tier_units tier_unit_price"),
	"flat_fees":        compileForm("tier_flat_fee+"),
	"provider_charge":  compileForm("(price_line | price_line:)+"),
	"price_line":       compileForm("priced_units price_rate"),
	"elsewhere_units":  compileForm("part+"),
	"billed_elsewhere": compileForm("part+"),
}

// compileForm returns the expression that matches the names of steps as namesOf returns them.
func compileForm(form string) *regexp.Regexp {
	names := regexp.MustCompile(`[a-z_]+:?`).ReplaceAllString(form, "(?:$0;)")
	return regexp.MustCompile("^(?:" + strings.ReplaceAll(names, " ", "") + ")$")
}

var inUnits = regexp.MustCompile(`(usage|units|quantity|size)$`)

// expectedUnit returns the unit of the step. The unit of a part is the unit of its owner.
func (s *statementStep) expectedUnit(owner *statementStep, currency string) string {
	switch {
	case s.Name == "part":
		return owner.Unit
	case s.Name == "packages" || s.Name == "percent":
		return s.Name
	case inUnits.MatchString(s.Name):
		return "units"
	}
	return currency
}

// expectedEvents returns the number of events of the step, or nil if the number is not recomputed. It returns 0 for a
// step that has no number of events.
func (s *statementStep) expectedEvents(b breakdown) *big.Rat {
	switch s.Name {
	case "usage", "late_usage", "dimension_units":
		return nil
	case "total_usage":
		return b.sumEvents("usage", "late_usage")
	case "matched_units", "unrated_units":
		return s.parts.sumEvents("dimension_units")
	case "fixed_fees":
		return larger(b.units().events, new(big.Rat))
	}
	return new(big.Rat)
}

// rounded returns the exact amount, rounded as rounded_to of the step states. It panics with a *StatementError if
// rounded_to itself is wrong.
func (s *statementStep) rounded(b breakdown, currency string) *big.Rat {
	expected, by := s.expectedDecimals(b, currency), s.RoundedTo
	if s.RoundedTo != expected {
		panic(&StatementError{Path: s.path + "/rounded_to", Stated: cmp.Or(string(s.RoundedTo), "absent"), Recomputed: cmp.Or(string(expected), "absent")})
	}
	if s.Name == "exact_charge" { // the exact charge is rounded like the quotient that it contains
		by = b.get("usage_charge", "overage_charge").RoundedTo
	}
	if by == "" {
		return s.exact
	}
	digits, _ := strconv.Atoi(string(by))
	return roundHalfEven(s.exact, digits)
}

var (
	someDecimals     = regexp.MustCompile(`^[0-9]{1,2}$`)
	quotientDecimals = regexp.MustCompile(`^(1[6-9]|[2-9][0-9])$`)
)

// expectedDecimals returns the rounded_to of the step, or "" if the step is not rounded.
func (s *statementStep) expectedDecimals(b breakdown, currency string) json.Number {
	switch s.Name {
	case "charge":
		if b.find("provider_charge") == nil {
			return json.Number(strconv.Itoa(minorDigits(currency)))
		}
	case "reported_units":
		if !someDecimals.MatchString(string(s.RoundedTo)) {
			fail(s.path+"/rounded_to", cmp.Or(s.RoundedTo, "absent"), "it must be a number of decimals from 0 to 99")
		}
		return s.RoundedTo // The provider determines the number of decimals.
	case "elsewhere_units":
		if reported := b.find("reported_units"); reported != nil && b.find("late_usage") == nil {
			return reported.RoundedTo
		}
	case "usage_charge", "dimension_charge", "default_charge":
		if s.RoundedTo != "" && !quotientDecimals.MatchString(string(s.RoundedTo)) {
			fail(s.path+"/rounded_to", s.RoundedTo, "a quotient has 16 to 99 decimals")
		}
		return s.RoundedTo
	}
	return ""
}

// minorDigits returns the number of decimals of the currency, as in ISO 4217.
func minorDigits(currency string) int {
	for digits, codes := range map[int]string{
		0: "BIF CLP DJF GNF ISK JPY KMF KRW PYG RWF UGX UYI VND VUV XAF XOF XPF",
		3: "BHD IQD JOD KWD LYD OMR TND",
		4: "CLF UYW",
	} {
		if strings.Contains(" "+codes+" ", " "+currency+" ") {
			return digits
		}
	}
	return 2
}
