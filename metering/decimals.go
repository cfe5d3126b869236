package metering

import (
	"bytes"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"math/bits"
	"strings"

	"github.com/shopspring/decimal"
)

// Bounds of a quantity or an amount that a client may send.
const (
	MaxIntegerDigits  = 18 // |value| < 10^18
	MaxFractionDigits = 12
	maxLiteral        = 64 // bytes; no legal value needs more
)

// Decimal is an exact decimal number. Its zero value is 0. Sums may exceed the bounds of ParseDecimal; they
// stay exact.
type Decimal struct{ d decimal.Decimal }

// limit is the exclusive bound of the absolute value of a parsed number.
var limit = decimal.New(1, MaxIntegerDigits)

// ParseDecimal parses a JSON number literal, with or without an exponent, with |value| < 10^18 and at most
// 12 decimals. Trailing zeros do not count: 1.0000000000000 is 1.
func ParseDecimal(literal string) (Decimal, error) {
	d, err := parse(literal)
	if err != nil {
		return Decimal{}, err
	}
	if d.Exponent() < -MaxFractionDigits {
		if !d.Truncate(MaxFractionDigits).Equal(d) {
			return Decimal{}, fmt.Errorf("must have at most %d decimals", MaxFractionDigits)
		}
		d = d.Truncate(MaxFractionDigits)
	}
	return Decimal{d}, nil
}

// ParseRounded parses a JSON number literal with |value| < 10^18, and rounds it half to even to the given number of
// decimals.
func ParseRounded(literal string, places int32) (Decimal, error) {
	d, err := parse(literal)
	return Decimal{d}.Round(places), err
}

// parseMeasured parses a JSON number literal with |value| < 10^18, and rounds it half to even to
// MaxFractionDigits. Its length limit is larger than that of events, because jsonb expands exponents.
func parseMeasured(literal string) (Decimal, error) {
	if len(literal) > 2*maxNumberBytes {
		return Decimal{}, fmt.Errorf("must have at most %d characters", 2*maxNumberBytes)
	}
	d, err := parseNumber(literal)
	if err != nil {
		return Decimal{}, err
	}
	rounded := Decimal{d}.Round(MaxFractionDigits)
	if rounded.d.Abs().Cmp(limit) >= 0 {
		return Decimal{}, fmt.Errorf("must be smaller than 10^%d in absolute value", MaxIntegerDigits)
	}
	return rounded, nil
}

// parse parses a JSON number literal of at most maxLiteral bytes with |value| < 10^18.
func parse(literal string) (decimal.Decimal, error) {
	if len(literal) > maxLiteral {
		return decimal.Zero, fmt.Errorf("must have at most %d characters", maxLiteral)
	}
	return parseNumber(literal)
}

// parseNumber is parse without a limit on the length of the literal.
func parseNumber(literal string) (decimal.Decimal, error) {
	if !isJSONNumber(literal) {
		return decimal.Zero, fmt.Errorf("must be a JSON number")
	}
	mantissa, exponent, ok := strings.Cut(strings.ToLower(literal), "e")
	if ok {
		if len(strings.TrimLeft(exponent, "+-0")) > 2 {
			if strings.Trim(mantissa, "-0.") == "" {
				return decimal.Zero, nil
			}
			return decimal.Zero, fmt.Errorf("must have an exponent of at most two digits")
		}
	}
	d, err := decimal.NewFromString(literal)
	if err != nil {
		return decimal.Zero, fmt.Errorf("must be a JSON number")
	}
	small := !ok && len(literal) <= MaxIntegerDigits // usual case: the length shows that |d| < limit
	if !small && d.Abs().Cmp(limit) >= 0 {
		return decimal.Zero, fmt.Errorf("must be smaller than 10^%d in absolute value", MaxIntegerDigits)
	}
	return d, nil
}

// isJSONNumber reports whether s is a number by RFC 8259 §6, which is stricter than the decimal library: no
// leading plus, no bare point, no leading zeros. The checks of the first and the last byte exclude other
// JSON values and spaces.
func isJSONNumber(s string) bool {
	return s != "" && (s[0] == '-' || isDigit(s[0])) && isDigit(s[len(s)-1]) && json.Valid([]byte(s))
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

// Whole returns n as a Decimal.
func Whole(n int64) Decimal { return Decimal{decimal.NewFromInt(n)} }

// MustDecimal is ParseDecimal for literals in source code. It panics if the literal is not valid.
func MustDecimal(literal string) Decimal {
	d, err := ParseDecimal(literal)
	if err != nil {
		panic(fmt.Sprintf("decimal %q: %v", literal, err))
	}
	return d
}

// Add returns x + y. Most sums begin at zero; that case does not allocate.
func (x Decimal) Add(y Decimal) Decimal {
	switch {
	case x.IsZero():
		return y
	case y.IsZero():
		return x
	}
	return Decimal{x.d.Add(y.d)}
}

// Sub returns x − y.
func (x Decimal) Sub(y Decimal) Decimal {
	if y.IsZero() {
		return x
	}
	return Decimal{x.d.Sub(y.d)}
}

func (x Decimal) Mul(y Decimal) Decimal { return Decimal{x.d.Mul(y.d)} }
func (x Decimal) Cmp(y Decimal) int     { return x.d.Cmp(y.d) }
func (x Decimal) Equal(y Decimal) bool  { return x.d.Equal(y.d) }
func (x Decimal) IsZero() bool          { return x.d.IsZero() }
func (x Decimal) IsNegative() bool      { return x.d.IsNegative() }

// DivMod returns the quotient of x and a positive n, rounded down to a whole number, and the remainder,
// which is never negative.
func (x Decimal) DivMod(n int64) (whole, rest Decimal) {
	by := decimal.NewFromInt(n)
	q, r := x.d.QuoRem(by, 0)
	if r.IsNegative() {
		q, r = q.Sub(decimal.NewFromInt(1)), r.Add(by)
	}
	return Decimal{q}, Decimal{r}
}

// DivUp returns x / n for a positive n, rounded up to a whole number.
func (x Decimal) DivUp(n int64) Decimal {
	whole, rest := x.DivMod(n)
	if !rest.IsZero() {
		return whole.Add(Whole(1))
	}
	return whole
}

// Div returns x / n for a positive n. The result is exact if the quotient has finitely many
// decimals. Otherwise, it is rounded half to even. Let k be the larger of places and the number of
// decimals of x. Rounding the result to at most k decimals gives the same as rounding the exact
// quotient. Comparing the result with a number of at most k decimals gives the same as comparing the
// exact quotient.
//
// Proof: let q = x / n. A multiple t of 10^-k differs from q by 0 or by at least 10^-k / n. The
// result has k + b decimals, where b is the bit length of n. It differs from q by at most
// 10^-(k+b) / 2, which is less than 10^-k / n since n < 2^b. So it is on the same side of t as q.
// If q has finitely many decimals, n divides x × 10^k × 2^i × 5^j with i, j < b, so k + b decimals
// hold q.
func (x Decimal) Div(n int64, places int32) Decimal {
	k := max(places, -x.d.Exponent())
	return Decimal{divideEven(x.d, n, k+int32(bits.Len64(uint64(n))))}
}

// Decimals returns the number of digits after the decimal point.
func (x Decimal) Decimals() int32 { return max(-x.d.Exponent(), 0) }

// divideEven returns x / n, rounded half to even to the given number of decimals.
func divideEven(x decimal.Decimal, n int64, places int32) decimal.Decimal {
	by := decimal.NewFromInt(n)
	q, r := x.QuoRem(by, places)
	unit := decimal.New(int64(x.Sign()), -places)
	switch r.Abs().Mul(decimal.NewFromInt(2)).Cmp(by.Shift(-places)) {
	case 1:
		return q.Add(unit)
	case 0:
		if q.Coefficient().Bit(0) == 1 {
			return q.Add(unit)
		}
	}
	return q
}

// Round returns x, rounded half to even to the given number of decimals.
func (x Decimal) Round(places int32) Decimal {
	if x.d.Exponent() >= -places { // rounding changes nothing
		return x
	}
	return Decimal{x.d.RoundBank(places)}
}

// percentOf returns x / whole × 100 with two decimals, rounded half away from zero.
func (x Decimal) percentOf(whole Decimal) Decimal {
	return Decimal{x.d.Mul(decimal.NewFromInt(100)).DivRound(whole.d, 2)}
}

// percentDown returns x / whole × 100, rounded toward zero to the given number of decimals.
func (x Decimal) percentDown(whole Decimal, places int32) Decimal {
	percent, _ := x.d.Mul(decimal.NewFromInt(100)).QuoRem(whole.d, places)
	return Decimal{percent}
}

// String returns plain notation without trailing zeros: "100000", "-0.1".
func (x Decimal) String() string { return x.d.String() }

// MarshalJSON returns a JSON number in plain notation.
func (x Decimal) MarshalJSON() ([]byte, error) { return []byte(x.String()), nil }

// UnmarshalJSON parses a JSON number within the bounds of ParseDecimal.
func (x *Decimal) UnmarshalJSON(literal []byte) error {
	parsed, err := ParseDecimal(string(bytes.TrimSpace(literal)))
	if err != nil {
		return err
	}
	*x = parsed
	return nil
}

// Value returns the exact text for the database.
func (x Decimal) Value() (driver.Value, error) { return x.String(), nil }

// Scan reads a numeric column of any size.
func (x *Decimal) Scan(source any) error {
	if err := x.d.Scan(source); err != nil {
		return fmt.Errorf("scan decimal: %w", err)
	}
	return nil
}
