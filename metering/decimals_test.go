package metering_test

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/metering"
)

func decimal(t require.TestingT, literal string) metering.Decimal {
	d, err := metering.ParseDecimal(literal)
	require.NoError(t, err, literal)
	return d
}

func TestParseDecimal(t *testing.T) {
	for literal, want := range map[string]string{
		"0":                                "0",
		"-0":                               "0",
		"-0.000":                           "0",
		"0e5":                              "0",
		"0E-99":                            "0",
		"0e999999999":                      "0",
		"-0.0e-999999999":                  "0",
		"1":                                "1",
		"-1":                               "-1",
		"1.50":                             "1.5",
		"1e2":                              "100",
		"1E+2":                             "100",
		"1e-2":                             "0.01",
		"1e0":                              "1",
		"1.5e1":                            "15",
		"1e-12":                            "0.000000000001",
		"-1e-12":                           "-0.000000000001",
		"10e-13":                           "0.000000000001",
		"1.000000000000000000000000":       "1",
		"1.00000000000000000000000e-12":    "0.000000000001",
		"123456789012345678.123456789012":  "123456789012345678.123456789012",
		"-999999999999999999.999999999999": "-999999999999999999.999999999999",
		"999999999999999999":               "999999999999999999",
		"1e17":                             "100000000000000000",
		"0.00000000000000000001e20":        "1",
		"100000000000000000000e-20":        "1",
	} {
		t.Run(literal+" is "+want, func(t *testing.T) {
			require.Equal(t, want, decimal(t, literal).String())
			var unmarshalled metering.Decimal
			require.NoError(t, json.Unmarshal([]byte(literal), &unmarshalled))
			marshalled, err := json.Marshal(unmarshalled)
			require.NoError(t, err)
			require.Equal(t, want, string(marshalled))
		})
	}

	for rule, literals := range map[string][]string{
		"must be a JSON number": {
			"", " ", "-", "+1", "01", "-01", ".5", "5.", "1e", "1e+", "1e1.5", "1_000", "1,5", "0x10", "1 ", " 1", "1\n", "\t-1", "1 2", "١",
			"NaN", "Infinity", "-Infinity", "null", "true", `"1"`, "[1]", "{}", "1\x00", "--1", "1e--1", "1ee1", "1/2",
		},
		"must be smaller than 10^18 in absolute value": {
			"1000000000000000000", "-1000000000000000000", "1e18", "1e99", "-1e99", "0.1e19", "999999999999999999999",
		},
		"must have at most 12 decimals": {
			"1e-13", "0.0000000000001", "1.0000000000001", "1e-99", "123456789012345678.1234567890125",
		},
		"must have an exponent of at most two digits": {
			"1e100", "1e-100", "1e999999999", "-1e-999999999", "1e99999999999999999999", "0.1e100",
		},
		"must have at most 64 characters": {
			strings.Repeat("9", 65), "0." + strings.Repeat("0", 63), "1e" + strings.Repeat("0", 64), strings.Repeat("-", 1<<20),
		},
	} {
		for _, literal := range literals {
			t.Run("refuses "+literal[:min(len(literal), 30)], func(t *testing.T) {
				_, err := metering.ParseDecimal(literal)
				require.EqualError(t, err, rule)
			})
		}
	}
}

// literal draws a JSON number within the bounds of ParseDecimal. It also returns the exact value, parsed by
// math/big.
func literal(t *rapid.T, name string) (string, *big.Rat) {
	text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,12})?`).Draw(t, name)
	value, ok := new(big.Rat).SetString(text)
	require.True(t, ok)
	return text, value
}

func TestDecimalProperties(t *testing.T) {
	exact := func(t *rapid.T, want *big.Rat, got metering.Decimal) {
		value, ok := new(big.Rat).SetString(got.String())
		require.True(t, ok, got.String())
		require.Zero(t, want.Cmp(value), "%s is not %s", got, want.RatString())
	}

	t.Run("ItIsTheNumberThatWasSent", rapid.MakeCheck(func(t *rapid.T) {
		text, value := literal(t, "number")
		exact(t, value, decimal(t, text))
	}))

	t.Run("ItsTextIsPlainAndReadsBackAsTheSame", rapid.MakeCheck(func(t *rapid.T) {
		text, _ := literal(t, "number")
		d := decimal(t, text)
		require.Regexp(t, `^-?(0|[1-9][0-9]*)(\.[0-9]*[1-9])?$`, d.String())
		require.NotEqual(t, "-0", d.String())
		require.True(t, d.Equal(decimal(t, d.String())))
	}))

	t.Run("AShiftedPointIsTheSameNumber", rapid.MakeCheck(func(t *rapid.T) {
		whole := rapid.Int64Range(-999_999_999_999, 999_999_999_999).Draw(t, "whole")
		shift := rapid.IntRange(0, 12).Draw(t, "shift")
		literal := new(big.Rat).SetInt64(whole).FloatString(0) + "e-" + new(big.Int).SetInt64(int64(shift)).String()
		exact(t, new(big.Rat).SetFrac(big.NewInt(whole), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(shift)), nil)), decimal(t, literal))
	}))

	t.Run("SumsDifferencesAndProductsAreExact", rapid.MakeCheck(func(t *rapid.T) {
		a, x := literal(t, "a")
		b, y := literal(t, "b")
		exact(t, new(big.Rat).Add(x, y), decimal(t, a).Add(decimal(t, b)))
		exact(t, new(big.Rat).Sub(x, y), decimal(t, a).Sub(decimal(t, b)))
		exact(t, new(big.Rat).Mul(x, y), decimal(t, a).Mul(decimal(t, b)))
		require.Equal(t, x.Cmp(y), decimal(t, a).Cmp(decimal(t, b)))
	}))

	t.Run("AQuotientIsExactOrRoundsAndComparesAsTheExactOne", rapid.MakeCheck(func(t *rapid.T) {
		text, value := literal(t, "number")
		by := rapid.OneOf(rapid.SampledFrom([]int64{1, 2, 3, 7, 1000, 1024, 3600, 1 << 40, 1_000_000_000_000}), rapid.Int64Range(1, 1<<40)).Draw(t, "by")
		want := new(big.Rat).Quo(value, new(big.Rat).SetInt64(by))
		got := decimal(t, text).Div(by, 12)
		shown, ok := new(big.Rat).SetString(got.String())
		require.True(t, ok)
		if _, ends := want.FloatPrec(); ends {
			require.Zero(t, want.Cmp(shown), "%s / %d is %s", text, by, got)
		}
		places := rapid.Int32Range(0, 12).Draw(t, "places")
		unit := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places)), nil))
		near := new(big.Int).Quo(new(big.Rat).Quo(want, unit).Num(), new(big.Rat).Quo(want, unit).Denom())
		for n := int64(-1); n <= 1; n++ { // decimals near the quotient, with the given number of places
			at := new(big.Rat).Mul(new(big.Rat).SetInt(new(big.Int).Add(near, big.NewInt(n))), unit)
			require.Equal(t, want.Cmp(at), shown.Cmp(at), "%s / %d beside %s", text, by, at.FloatString(12))
		}
		whole, rest := new(big.Int).DivMod(want.Num(), want.Denom(), new(big.Int))
		if rest.Sign() > 0 {
			whole.Add(whole, big.NewInt(1))
		}
		require.Equal(t, whole.String(), decimal(t, text).DivUp(by).String())
	}))

	t.Run("ItGoesToTheDatabaseAndBackUnchanged", rapid.MakeCheck(func(t *rapid.T) {
		text, _ := literal(t, "number")
		stored, err := decimal(t, text).Value()
		require.NoError(t, err)
		var read metering.Decimal
		require.NoError(t, read.Scan(stored))
		require.True(t, read.Equal(decimal(t, text)))
	}))

	t.Run("RoundingIsToTheNearestAndOnATieToTheEven", rapid.MakeCheck(func(t *rapid.T) {
		text, value := literal(t, "number")
		places := rapid.Int32Range(0, 12).Draw(t, "places")
		unit := new(big.Rat).SetFrac(big.NewInt(1), new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(places)), nil))
		rounded, ok := new(big.Rat).SetString(decimal(t, text).Round(places).String())
		require.True(t, ok)
		units := new(big.Rat).Quo(rounded, unit)
		require.True(t, units.IsInt(), "%s has more than %d decimals", rounded.FloatString(12), places)
		away := new(big.Rat).Sub(rounded, value)
		switch away.Abs(away).Cmp(new(big.Rat).Quo(unit, big.NewRat(2, 1))) {
		case 1:
			t.Fatalf("%s is more than half a unit from %s", rounded.FloatString(12), text)
		case 0:
			require.Zero(t, units.Num().Bit(0), "%s is a tie rounded to odd", text)
		}
	}))
}

func TestDecimal(t *testing.T) {
	t.Run("TheZeroValueIsZero", func(t *testing.T) {
		var d metering.Decimal
		require.Equal(t, "0", d.String())
		require.True(t, d.IsZero())
		require.Equal(t, "1", d.Add(metering.Whole(1)).String())
		text, err := json.Marshal(d)
		require.NoError(t, err)
		require.Equal(t, "0", string(text))
	})

	t.Run("SumsGrowPastTheBoundsOfInput", func(t *testing.T) {
		most := decimal(t, "999999999999999999.999999999999")
		require.Equal(t, "1999999999999999999.999999999998", most.Add(most).String())
		require.Equal(t, "999999999999999999999999999998000000.000000000000000000000001", most.Mul(most).String())
		var read metering.Decimal
		require.NoError(t, read.Scan("1999999999999999999.999999999998"))
		require.True(t, read.Equal(most.Add(most)))
	})

	t.Run("OneHundredTenthsAreTen", func(t *testing.T) {
		var sum metering.Decimal
		for range 100 {
			sum = sum.Add(decimal(t, "0.1"))
		}
		require.Equal(t, "10", sum.String())
	})

	t.Run("WhatIsNoNumberIsNotReadFromTheDatabase", func(t *testing.T) {
		var d metering.Decimal
		for _, source := range []any{"NaN", "Infinity", "", nil, true} {
			require.Error(t, d.Scan(source), "%v", source)
		}
	})

	t.Run("JSONHoldsItAsANumberAmongOtherThings", func(t *testing.T) {
		var body struct {
			Price metering.Decimal  `json:"price"`
			Limit *metering.Decimal `json:"limit"`
		}
		require.NoError(t, json.Unmarshal([]byte(`{"price": 123456789012345678.123456789012, "limit": null}`), &body))
		require.Nil(t, body.Limit)
		text, err := json.Marshal(body)
		require.NoError(t, err)
		require.Equal(t, `{"price":123456789012345678.123456789012,"limit":null}`, string(text))
		require.Error(t, json.Unmarshal([]byte(`{"price": "1"}`), &body))
		require.Error(t, json.Unmarshal([]byte(`{"price": 1e18}`), &body))
	})
}

func FuzzParseDecimal(f *testing.F) {
	for _, seed := range []string{"0", "-1.5e-3", "123456789012345678.123456789012", "1e-12", "1e999999999", "0e999999999", "NaN", "01", "1e+", "-0.0"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, literal string) {
		d, err := metering.ParseDecimal(literal)
		if err != nil {
			return
		}
		require.True(t, json.Valid([]byte(literal)), "%q is no JSON", literal)
		text := d.String()
		require.LessOrEqual(t, len(text), len("-999999999999999999.999999999999"))
		again, err := metering.ParseDecimal(text)
		require.NoError(t, err)
		require.True(t, d.Equal(again))
		if !strings.ContainsAny(literal, "eE") { // big.Rat has no bound on exponents
			value, ok := new(big.Rat).SetString(literal)
			require.True(t, ok)
			shown, ok := new(big.Rat).SetString(text)
			require.True(t, ok)
			require.Zero(t, value.Cmp(shown), "%q became %s", literal, text)
		}
	})
}

func TestParseRoundedRoundsNumberToDecimals(t *testing.T) {
	t.Parallel()
	for literal, want := range map[string]string{
		"0.30000000000000004": "0.3", "1.2345675": "1.234568", "1.2345665": "1.234566", "-1e-7": "0", "1.5e3": "1500", "0": "0",
		"999999999999999999.9999994": "999999999999999999.999999",
	} {
		got, err := metering.ParseRounded(literal, 6)
		require.NoError(t, err, literal)
		require.Equal(t, want, got.String(), literal)
	}
	for _, literal := range []string{"", "null", "NaN", "1,5", "1e400", "1000000000000000000"} {
		_, err := metering.ParseRounded(literal, 6)
		require.Error(t, err, literal)
	}
}
