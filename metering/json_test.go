package metering_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

// judgedProperties judges an event with these properties.
func judgedProperties(properties string) (metering.Event, *metering.Rejection) {
	return metering.SentEvent{EventType: "call", CustomerID: "acme", Properties: json.RawMessage(properties)}.Judge(now)
}

func TestPropertiesThatParsersReadInDifferentWaysAreRefused(t *testing.T) {
	t.Parallel()
	const surrogate = "must not contain an unpaired UTF-16 surrogate, which is not a character"
	twice := func(name string) string {
		return fmt.Sprintf("must not contain the name %q twice in the same object", name)
	}
	var many, manyTwice []string
	for i := range 1_000 {
		many = append(many, fmt.Sprintf(`"%d":1`, i))
	}
	manyTwice = append(append(manyTwice, many...), `"500":2`)
	for text, rule := range map[string]string{
		`{"a":1,"a":1}`:                          twice("a"),
		`{"a":1,"b":2,"\u0061":3}`:               twice("a"),
		`{"a" : 1, "a"	:2}`:                      twice("a"),
		`{"":1,"":2}`:                            twice(""),
		`{"x":[{"y":{"a":1,"a":2}}]}`:            twice("a"),
		`{"a":{"b":1},"c":2,"a":{}}`:             twice("a"),
		"{" + strings.Join(manyTwice, ",") + "}": twice("500"),
		`{"` + strings.Repeat("é", 100) + `":1,"` + strings.Repeat("é", 100) + `":1}`: twice(strings.Repeat("é", 32) + "…"),
		`{"p":"\ud800"}`:             surrogate,
		`{"p":"\udfff"}`:             surrogate,
		`{"p":"\udbff"}`:             surrogate,
		`{"p":"\udc00"}`:             surrogate,
		`{"p":"\ud800\ud800"}`:       surrogate,
		`{"p":"\ud800x"}`:            surrogate,
		`{"p":"\ud800\n"}`:           surrogate,
		`{"p":"\uD83D\uDE00\uDE00"}`: surrogate,
		`{"p":["x",{"q":"\ud83d"}]}`: surrogate,
		`{"\ud800":1}`:               surrogate,
		"{\"p\":\"\xed\xa0\x80\"}":   "must be UTF-8",
		"{\"p\":\"\xff\"}":           "must be UTF-8",
		`{"p":"\u0000"}`:             "must not contain NUL",
		`{"a":1,"b":1,"c":[{"a":1},{"a":1}],"A":"a","d":"a"}`:       "",
		`{"a":"a","b":["a","a"],"c":{"a":"a"}}`:                     "",
		`{"p":"\ud83d\ude00 \uD83D\uDE00 \\ud800 \ufffd �"}`:        "",
		"{" + strings.Join(many, ",") + "}":                         "",
		strings.Repeat(`{"a":`, 32) + "1" + strings.Repeat("}", 32): "",
	} {
		event, rejection := judgedProperties(text)
		if rule == "" {
			require.Nil(t, rejection, text)
			require.Equal(t, text, string(event.Properties))
			continue
		}
		require.NotNil(t, rejection, text)
		require.Equal(t, metering.Rejection{Code: "invalid_properties", Field: "properties", Message: rule}, *rejection, text)
	}
}

// TestPropertyDuplicateNameOrUnpairedSurrogateIsRefused checks that duplicate names and unpaired surrogates are refused
// wherever they occur in properties.
func TestPropertyDuplicateNameOrUnpairedSurrogateIsRefused(t *testing.T) {
	t.Parallel()
	histories.Check(t, func(t *rapid.T) {
		text, bad := anyJSON(2).Draw(t, "value"), rapid.SampledFrom([]string{`{"z":1,"z":1}`, `{"z":1,"y":[],"\u007a":{}}`, `"\ud800"`, `"a\udfffb"`}).Draw(t, "bad")
		for _, properties := range []string{`{"x":` + bad + `,"y":` + text + `}`, `{"y":[` + text + `,{"q":` + bad + `}]}`, `{"y":[[],{"p":` + text + `,"q":` + bad + `}]}`} {
			_, rejection := judgedProperties(properties)
			require.NotNil(t, rejection, properties)
			require.Equal(t, "invalid_properties", rejection.Code)
		}
	})
}

// FuzzProperties compares the rules for properties with a strict JSON parser.
func FuzzProperties(f *testing.F) {
	for _, seed := range []string{
		`{"a":1,"a":2}`, `{"a":{"b":1,"b":2}}`, `{"\u0061":1,"a":2}`, `{"a":"\ud800"}`, `{"a":"\ud83d\ude00"}`, `{"a":"\u0000"}`, `{"a":[1e99,1e100]}`, "{\"a\":\"\xff\"}",
		`{"a":[[[[]]]],"b":{}}`, `{ "a" : "b" , "b" : "a" }`, `{"\\":1,"\"":2,"\u005c":3}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if !json.Valid(text) || len(text) > metering.MaxPropertiesBytes || text[0] != '{' {
			return
		}
		_, rejection := judgedProperties(string(text))
		strict := jsontext.Value(text).IsValid()
		if !strict {
			require.NotNil(t, rejection)
			return
		}
		if rejection != nil {
			require.Regexp(t, "NUL|nested levels|a number of more|exponent", rejection.Message)
		}
	})
}
