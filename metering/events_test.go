package metering_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/metering"
)

var now = time.Date(2026, 11, 20, 12, 34, 56, 789_123_456, time.UTC)

// sent decodes an event from the JSON that a client sends.
func sent(t require.TestingT, text string) metering.SentEvent {
	var s metering.SentEvent
	require.NoError(t, json.Unmarshal([]byte(text), &s))
	return s
}

// judged returns the event that Judge accepts. It fails the test if Judge rejects the event.
func judged(t require.TestingT, text string) metering.Event {
	event, rejection := sent(t, text).Judge(now)
	if rejection != nil {
		require.FailNow(t, "the event was rejected", "%s: %v", text, rejection)
	}
	return event
}

func TestJudgeValidatesEvent(t *testing.T) {
	t.Run("WhatIsAbsentHasItsDefault", func(t *testing.T) {
		for _, text := range []string{
			`{"event_type":"call","customer_id":"acme"}`,
			`{"event_type":"call","customer_id":"acme","timestamp":null,"value":null,"properties":null,"idempotency_key":null}`,
		} {
			require.Equal(t, metering.Event{
				EventType: "call", ExternalID: "acme", Value: metering.Whole(1),
				At: time.Date(2026, 11, 20, 12, 34, 56, 789_123_000, time.UTC), ReceivedAt: time.Date(2026, 11, 20, 12, 34, 56, 789_123_000, time.UTC),
			}, judged(t, text))
		}
	})

	t.Run("WhatIsSentIsKept", func(t *testing.T) {
		event := judged(t, `{"event_type":"call","customer_id":"acme","timestamp":"2026-11-20T14:00:00.123456789+02:00","value":-0.5,
			"properties":{"b": [1, {"c": null}], "a": 1e2},"idempotency_key":"k"}`)
		require.NotZero(t, event.Hash)
		event.Hash = [32]byte{}
		require.Equal(t, metering.Event{
			EventType: "call", ExternalID: "acme", Value: metering.MustDecimal("-0.5"), IdempotencyKey: "k", Dated: true,
			At:         time.Date(2026, 11, 20, 12, 0, 0, 123_456_000, time.UTC),
			Properties: json.RawMessage(`{"b": [1, {"c": null}], "a": 1e2}`),
			ReceivedAt: time.Date(2026, 11, 20, 12, 34, 56, 789_123_000, time.UTC),
		}, event)
	})

	nested := func(depth int) string {
		return strings.Repeat(`{"a":`, depth-1) + "{}" + strings.Repeat("}", depth-1)
	}
	filled := func(bytes int) string { return `{"a":"` + strings.Repeat("x", bytes-8) + `"}` }
	text := func(characters int) string {
		return strings.Repeat("é😀", characters/2) + strings.Repeat("x", characters%2)
	}
	at := func(t time.Time) string { return `"` + t.Format(time.RFC3339Nano) + `"` }

	for _, c := range []struct {
		name, field, good, bad, code string
	}{
		{"AnEventTypeHasAtMost255Characters", "event_type", `"` + text(255) + `"`, `"` + text(256) + `"`, "invalid_event_type"},
		{"AnEventTypeIsRequired", "event_type", `" "`, `""`, "invalid_event_type"},
		{"AnEventTypeThatIsNullIsAbsent", "event_type", `"null"`, `null`, "invalid_event_type"},
		{"AnEventTypeHasNoNUL", "event_type", `"a\u0001"`, `"a\u0000"`, "invalid_event_type"},
		{"ACustomerHasAtMost255Characters", "customer_id", `"` + text(255) + `"`, `"` + text(256) + `"`, "invalid_customer_id"},
		{"ACustomerIsRequired", "customer_id", `"0"`, `""`, "invalid_customer_id"},
		{"ACustomerHasNoNUL", "customer_id", `"\\u0000"`, `"\u0000"`, "invalid_customer_id"},
		{"AKeyHasAtMost255Characters", "idempotency_key", `"` + text(255) + `"`, `"` + text(256) + `"`, "invalid_idempotency_key"},
		{"AKeyIsNotEmpty", "idempotency_key", `null`, `""`, "invalid_idempotency_key"},
		{"AKeyHasNoNUL", "idempotency_key", `"k"`, `"k\u0000"`, "invalid_idempotency_key"},

		{"ATimestampIsAtMostFiveYearsBack", "timestamp", at(now.AddDate(-5, 0, 0)), at(now.AddDate(-5, 0, 0).Add(-time.Microsecond)), "timestamp_too_old"},
		{"ATimestampIsAtMostAnHourAhead", "timestamp", at(now.Add(time.Hour)), at(now.Add(time.Hour + time.Microsecond)), "timestamp_in_future"},
		{"ATimestampIsAnInstant", "timestamp", `"2026-11-20T12:00:00Z"`, `"2026-11-20T12:00:00"`, "invalid_timestamp"},
		{"ATimestampIsNotEmpty", "timestamp", `null`, `""`, "invalid_timestamp"},

		{"AValueIsBelowTenToThe18", "value", `999999999999999999.999999999999`, `1000000000000000000`, "invalid_value"},
		{"AValueHasAtMost12Decimals", "value", `1e-12`, `1e-13`, "invalid_value"},
		{"AValueIsANumber", "value", `-0`, `"1"`, "invalid_value"},
		{"AValueHasAnExponentThatCanBeComputed", "value", `0e999999999`, `1e999999999`, "invalid_value"},

		{"PropertiesAreAnObject", "properties", `{}`, `[]`, "invalid_properties"},
		{"PropertiesAreNoText", "properties", `null`, `"{}"`, "invalid_properties"},
		{"PropertiesHaveAtMost16KiB", "properties", filled(16 << 10), filled(16<<10 + 1), "properties_too_large"},
		{"PropertiesNestAtMost32Deep", "properties", nested(32), nested(33), "invalid_properties"},
		{"ArraysCountAsDepth", "properties", `{"a":` + strings.Repeat("[", 31) + strings.Repeat("]", 31) + "}", `{"a":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + "}", "invalid_properties"},
		{"BracketsInTextsAreNoDepth", "properties", `{"a":"` + strings.Repeat("[{", 100) + `"}`, nested(40), "invalid_properties"},
		{"PropertiesHaveNoNUL", "properties", `{"a":"\u0001"}`, `{"a":"b\u0000c"}`, "invalid_properties"},
		{"NamesOfPropertiesHaveNoNUL", "properties", `{"\u0001":1}`, `{"\u0000":1}`, "invalid_properties"},
		{"NestedPropertiesHaveNoNUL", "properties", `{"a":[{"b":"\u0001"}]}`, `{"a":[{"b":"\u0000"}]}`, "invalid_properties"},
		{"AnEscapedBackslashBeforeU0000IsNoNUL", "properties", `{"a":"\\u0000 \u00e9"}`, `{"a":"\\\u0000 \u00e9"}`, "invalid_properties"},
		{"NumbersWithinHaveAtMost128Characters", "properties", `{"a":` + strings.Repeat("1", 128) + `}`, `{"a":` + strings.Repeat("1", 129) + `}`, "invalid_properties"},
		{"NumbersWithinHaveExponentsOfTwoDigits", "properties", `{"a":1e99,"b":[-1.5E-99]}`, `{"a":1e100}`, "invalid_properties"},
		{"ASmallExponentWithinIsBoundedToo", "properties", `{"a":"1e-1000000"}`, `{"a":1E-1000000}`, "invalid_properties"},
	} {
		t.Run(c.name, func(t *testing.T) {
			event := map[string]json.RawMessage{"event_type": json.RawMessage(`"call"`), "customer_id": json.RawMessage(`"acme"`)}
			judge := func(value string) *metering.Rejection {
				event[c.field] = json.RawMessage(value)
				text, err := json.Marshal(event)
				require.NoError(t, err)
				_, rejection := sent(t, string(text)).Judge(now)
				return rejection
			}
			require.Nil(t, judge(c.good))
			rejection := judge(c.bad)
			require.NotNil(t, rejection)
			require.Equal(t, c.code, rejection.Code)
			require.Equal(t, c.field, rejection.Field)
			require.NotContains(t, rejection.Message, c.bad)
		})
	}

	t.Run("TextsThatAreNotUTF8AreRefused", func(t *testing.T) {
		good, bad := "k", "\xff"
		for code, s := range map[string]metering.SentEvent{
			"invalid_event_type":      {EventType: bad, CustomerID: good},
			"invalid_customer_id":     {EventType: good, CustomerID: bad},
			"invalid_idempotency_key": {EventType: good, CustomerID: good, IdempotencyKey: &bad},
			"invalid_timestamp":       {EventType: good, CustomerID: good, Timestamp: &bad},
			"invalid_properties":      {EventType: good, CustomerID: good, Properties: json.RawMessage("{\"a\":\"\xff\"}")},
		} {
			_, rejection := s.Judge(now)
			require.NotNil(t, rejection, code)
			require.Equal(t, code, rejection.Code)
		}
	})

	t.Run("PropertiesWithEscapesStayWithinTheirBound", func(t *testing.T) {
		text := `{"a":"\u00e9","b":"` + strings.Repeat("<&>", 5000) + `"}`
		event := judged(t, `{"event_type":"call","customer_id":"acme","properties":`+text+`}`)
		require.JSONEq(t, text, string(event.Properties))
		require.LessOrEqual(t, len(event.Properties), metering.MaxPropertiesBytes)
	})
}

func TestHashIdentifiesEventContent(t *testing.T) {
	hash := func(t *testing.T, fields string) [32]byte {
		return judged(t, `{"event_type":"call","customer_id":"acme","idempotency_key":"k"`+fields+`}`).Hash
	}

	t.Run("ARepeatWithoutATimestampIsTheSameWheneverItComes", func(t *testing.T) {
		s := sent(t, `{"event_type":"call","customer_id":"acme","idempotency_key":"k","value":2}`)
		first, rejection := s.Judge(now)
		require.Nil(t, rejection)
		later, rejection := s.Judge(now.AddDate(1, 0, 0))
		require.Nil(t, rejection)
		require.Equal(t, first.Hash, later.Hash)
		require.NotEqual(t, first.At, later.At)
	})

	for name, pair := range map[string][2]string{
		"NullIsAbsentForATimestamp":        {``, `,"timestamp":null`},
		"NullIsAbsentForAValue":            {``, `,"value":null`},
		"NullIsAbsentForProperties":        {``, `,"properties":null`},
		"ANumberIsTheSameHoweverWritten":   {`,"value":5`, `,"value":0.50e1`},
		"ZeroIsTheSameHoweverWritten":      {`,"value":0`, `,"value":-0e999`},
		"SpacesInPropertiesDoNotMatter":    {`,"properties":{"a":[1,2]}`, `,"properties": { "a" : [ 1 , 2 ] } `},
		"OtherFieldsAreNotPartOfTheEvent":  {``, `,"source":"x"`},
		"TheOrderOfFieldsDoesNotMatter":    {`,"value":5,"timestamp":"2026-11-20T12:00:00Z"`, `,"timestamp":"2026-11-20T12:00:00Z","value":5`},
		"AnEmptyObjectIsItselfHoweverFull": {`,"properties":{}`, `,"properties":{ }`},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, hash(t, pair[0]), hash(t, pair[1])) })
	}

	t.Run("OtherContentIsAnotherEvent", func(t *testing.T) {
		seen := make(map[[32]byte]string)
		for _, event := range []string{
			`"event_type":"a","customer_id":"b"`,
			`"event_type":"ab","customer_id":"b"`,
			`"event_type":"a","customer_id":"bb"`,
			`"event_type":"a1:b","customer_id":"b"`,
			`"event_type":"a","customer_id":"1:b"`,
			`"event_type":"a","customer_id":"b","value":1`, // hashes differ for an absent value and 1, although the default is 1
			`"event_type":"a","customer_id":"b","value":2`,
			`"event_type":"a","customer_id":"b","timestamp":"2026-11-20T00:00:00Z"`,
			`"event_type":"a","customer_id":"b","timestamp":"2026-11-20T00:00:00.000001Z"`,
			`"event_type":"a","customer_id":"b","properties":{}`,
			`"event_type":"a","customer_id":"b","properties":{"value":1}`,
			`"event_type":"a","customer_id":"b","properties":{"value":"1"}`,
		} {
			h := judged(t, `{"idempotency_key":"k",`+event+`}`).Hash
			require.Empty(t, seen[h], "the same hash as %s", event)
			seen[h] = event
		}
	})

	t.Run("TheKeyIsNotPartOfItAndWithoutAKeyThereIsNone", func(t *testing.T) {
		require.Equal(t, hash(t, ``), judged(t, `{"event_type":"call","customer_id":"acme","idempotency_key":"other"}`).Hash)
		require.Zero(t, judged(t, `{"event_type":"call","customer_id":"acme"}`).Hash)
	})
}

var surrogatePair = regexp.MustCompile(`(?i)\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2}`)

// storable checks that the database can store the properties of an accepted event.
func storable(t require.TestingT, properties json.RawMessage) {
	if properties == nil {
		return
	}
	require.True(t, json.Valid(properties))
	require.True(t, utf8.Valid(properties))
	require.LessOrEqual(t, len(properties), metering.MaxPropertiesBytes)
	var tree map[string]any
	decoder := json.NewDecoder(bytes.NewReader(properties))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&tree))
	walk(t, tree, 1)
	alone := surrogatePair.ReplaceAllString(strings.ReplaceAll(string(properties), `\\`, ""), "")
	require.NotRegexp(t, `(?i)\\ud[89a-f]`, alone)
}

// walk checks the names, texts and depth of a decoded JSON value.
func walk(t require.TestingT, node any, depth int) {
	switch node := node.(type) {
	case map[string]any:
		require.LessOrEqual(t, depth, 32)
		for name, child := range node {
			require.NotContains(t, name, "\x00")
			walk(t, child, depth+1)
		}
	case []any:
		require.LessOrEqual(t, depth, 32)
		for _, child := range node {
			walk(t, child, depth+1)
		}
	case string:
		require.NotContains(t, node, "\x00")
	case json.Number:
		require.LessOrEqual(t, len(node), 132)
		if i := strings.IndexAny(node.String(), "eE"); i >= 0 {
			require.LessOrEqual(t, len(strings.TrimLeft(node.String()[i+1:], "+-")), 2)
		}
	}
}

func FuzzJudge(f *testing.F) {
	for _, seed := range []string{
		`{"event_type":"call","customer_id":"acme"}`,
		`{"event_type":"call","customer_id":"acme","timestamp":"2026-11-20T12:00:00Z","value":1e-12,"properties":{"a":[1.50,{"b":"\u00e9"}]},"idempotency_key":"k"}`,
		`{"event_type":"call","customer_id":"acme","properties":{"a":"\ud800\u0000\\u0000"}}`,
		`{"event_type":"call","customer_id":"acme","properties":{"a":"\\u0000\u00e9<","b":1e999,"c":{"d":[[[]]]}}}`,
		"{\"event_type\":\"\xff\",\"customer_id\":\"\\ud800\",\"properties\":{\"\xff\":1}}",
		`{"event_type":"call","customer_id":"acme","value":"1","properties":[]}`,
	} {
		f.Add([]byte(seed))
	}
	version := metering.MeterVersion{GroupBy: []string{"a", "b"}}
	f.Fuzz(func(t *testing.T, body []byte) {
		var s metering.SentEvent
		if json.Unmarshal(body, &s) != nil {
			return
		}
		event, rejection := s.Judge(now)
		if rejection != nil {
			require.NotEmpty(t, rejection.Code)
			require.NotEmpty(t, rejection.Message)
			require.Zero(t, event)
			return
		}
		for _, text := range []string{event.EventType, event.ExternalID} {
			require.NotEmpty(t, text)
			require.LessOrEqual(t, utf8.RuneCountInString(text), 255)
			require.NotContains(t, text, "\x00")
			require.True(t, utf8.ValidString(text))
		}
		require.False(t, event.At.After(now.Add(time.Hour)))
		require.False(t, event.At.Before(now.AddDate(-5, 0, 0).Truncate(time.Microsecond)))
		require.Equal(t, s.IdempotencyKey != nil, event.Hash != [32]byte{})
		storable(t, event.Properties)
		_, err := version.GroupOf(event.Properties)
		require.NoError(t, err)
	})
}

// anyJSON draws a valid JSON value in the spellings of clients, with escapes, surrogate pairs and
// exponents. It contains no NUL.
func anyJSON(depth int) *rapid.Generator[string] {
	number := rapid.Custom(func(t *rapid.T) string {
		return rapid.StringMatching(`-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?`).Draw(t, "number")
	})
	text := rapid.Custom(func(t *rapid.T) string {
		parts := rapid.SliceOfN(rapid.SampledFrom([]string{
			"a", "é", "😀", " ", "<", "{", "]", `\"`, `\\`, `\/`, `\n`, `\u0041`, `\u00e9`, `\ud83d\ude00`, `\uD83D\uDE00`, `\u2028`, `\\u0000`, `\u0001`,
		}), 0, 4).Draw(t, "text")
		return `"` + strings.Join(parts, "") + `"`
	})
	leaf := rapid.OneOf(number, text, rapid.SampledFrom([]string{"null", "true", "false", "1", "1.0", "1e0", "100", "1e2"}))
	if depth == 0 {
		return leaf
	}
	inner := anyJSON(depth - 1)
	return rapid.OneOf(leaf, leaf, rapid.Custom(func(t *rapid.T) string {
		return "[" + strings.Join(rapid.SliceOfN(inner, 0, 3).Draw(t, "array"), ", ") + "]"
	}), anyObject(inner))
}

// anyObject draws a JSON object with distinct names and these values.
func anyObject(value *rapid.Generator[string]) *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		names := rapid.SliceOfNDistinct(rapid.SampledFrom([]string{`"a"`, `"b"`, `"B"`, `"\u0063"`, `"é"`, `"\\u0062"`, `""`}), 0, 4, rapid.ID).Draw(t, "names")
		var members []string
		for _, name := range names {
			members = append(members, name+": "+value.Draw(t, "value"))
		}
		return "{" + strings.Join(members, ",") + "}"
	})
}

func TestJudgeKeepsPropertiesAndRefusesNUL(t *testing.T) {
	t.Run("WhatIsAcceptedMeansWhatWasSent", rapid.MakeCheck(func(t *rapid.T) {
		text := anyObject(anyJSON(3)).Draw(t, "properties")
		event := judged(t, fmt.Sprintf(`{"event_type":"call","customer_id":"acme","properties":%s}`, text))
		storable(t, event.Properties)
		require.JSONEq(t, text, string(event.Properties))
	}))

	t.Run("ANULAnywhereIsRefused", rapid.MakeCheck(func(t *rapid.T) {
		text := anyJSON(2).Draw(t, "value")
		for _, properties := range []string{`{"x":"\u0000","y":` + text + `}`, `{"y":[` + text + `,{"\u0000":1}]}`} {
			_, rejection := sent(t, `{"event_type":"call","customer_id":"acme","properties":`+properties+`}`).Judge(now)
			require.NotNil(t, rejection)
			require.Equal(t, "properties must not contain NUL", rejection.Error())
		}
	}))
}
