package metering_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// filter returns a valid filter with values that are JSON literals.
func filter(t testing.TB, property string, operator metering.FilterOperator, values ...string) metering.Filter {
	t.Helper()
	f := metering.Filter{Property: property, Operator: operator}
	for _, literal := range values {
		f.Values = append(f.Values, metering.ParseFilterValue(json.RawMessage(literal)))
	}
	require.NoError(t, metering.MeterVersion{Aggregation: metering.Sum, Filters: []metering.Filter{f}}.Validate())
	return f
}

// measure measures an event with the value 7.5 and these properties.
func measure(t testing.TB, g metering.MeterVersion, properties string) metering.Measurement {
	t.Helper()
	e := &metering.Event{Value: metering.MustDecimal("7.5")}
	if properties != "" {
		e.Properties = json.RawMessage(properties)
	}
	m, err := g.Measure(e)
	require.NoError(t, err, properties)
	return m
}

// kinds lists properties with one kind of value each. The tests filter by the property a.
var kinds = []struct{ name, properties string }{
	{"one", `{"a":1}`},
	{"one with an exponent", `{"a":10e-1}`},
	{"two and a half", `{"a":2.50}`},
	{"a large number", `{"a":100000000000000000000000000000000000000001}`},
	{"the text one", `{"a":"1"}`},
	{"a text", `{"a":"x"}`},
	{"an escaped text", `{"a":"\u0078"}`},
	{"true", `{"a":true}`},
	{"null", `{"a":null}`},
	{"missing", `{"b":1}`},
	{"nothing", ``},
	{"an object", `{"a":{"k":1.0}}`},
	{"an array", `{"a":[1]}`},
}

func TestFiltersCompareNumbersAsNumbersAndOtherValuesAsText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		filter  metering.Filter
		matches string // names of the matching kinds
	}{
		{filter(t, "a", metering.FilterEq, `1.0`), "one, one with an exponent"},
		{filter(t, "a", metering.FilterEq, `"1"`), "the text one"},
		{filter(t, "a", metering.FilterEq, `"x"`), "a text, an escaped text"},
		{filter(t, "a", metering.FilterEq, `true`), "true"},
		{filter(t, "a", metering.FilterEq, `"true"`), ""},
		{filter(t, "a", metering.FilterEq, `"null"`), ""},
		{filter(t, "a", metering.FilterEq, `"{\"k\":1}"`), "an object"},
		{filter(t, "a", metering.FilterEq, `100000000000000000000000000000000000000001`), "a large number"},
		{filter(t, "a", metering.FilterEq, `100000000000000000000000000000000000000000`), ""},
		{filter(t, "a", metering.FilterNe, `1`), "two and a half, a large number, the text one, a text, an escaped text, true, null, missing, nothing, an object, an array"},
		{filter(t, "a", metering.FilterIn, `"x"`, `2.5`), "two and a half, a text, an escaped text"},
		{filter(t, "a", metering.FilterNotIn, `"x"`, `2.5`, `"{\"k\":1}"`, `"[1]"`), "one, one with an exponent, a large number, the text one, true, null, missing, nothing"},
		{filter(t, "a", metering.FilterExists), "one, one with an exponent, two and a half, a large number, the text one, a text, an escaped text, true, an object, an array"},
		{filter(t, "a", metering.FilterNotExists), "null, missing, nothing"},
		{filter(t, "a", metering.FilterGt, `1`), "two and a half, a large number"},
		{filter(t, "a", metering.FilterGt, `100000000000000000000000000000000000000000.5`), "a large number"},
		{filter(t, "a", metering.FilterGte, `1`), "one, one with an exponent, two and a half, a large number"},
		{filter(t, "a", metering.FilterLt, `2.5`), "one, one with an exponent"},
		{filter(t, "a", metering.FilterLte, `2.5`), "one, one with an exponent, two and a half"},
	} {
		var matches []string
		for _, kind := range kinds {
			m := measure(t, metering.MeterVersion{Filters: []metering.Filter{c.filter}}, kind.properties)
			if m.Verdict == metering.Counted {
				require.Equal(t, "7.5", m.Value.String())
				matches = append(matches, kind.name)
				continue
			}
			require.Equal(t, metering.FilteredOut, m.Verdict)
		}
		require.Equal(t, c.matches, strings.Join(matches, ", "), "%+v", c.filter)
	}
}

func TestEventMustMatchAllFilters(t *testing.T) {
	t.Parallel()
	g := metering.MeterVersion{Filters: []metering.Filter{filter(t, "a", metering.FilterGte, "1"), filter(t, "a", metering.FilterLt, "2"), filter(t, "b", metering.FilterNotExists)}}
	require.Equal(t, metering.Counted, measure(t, g, `{"a":1.999}`).Verdict)
	for _, properties := range []string{`{"a":0.999}`, `{"a":2}`, `{"a":1,"b":0}`, ``} {
		require.Equal(t, metering.FilteredOut, measure(t, g, properties).Verdict, properties)
	}
}

func TestDottedPathPrefersPropertyWithWholeName(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ path, properties, value string }{
		{"a", `{"a":1}`, "1"},
		{"a.b", `{"a":{"b":2}}`, "2"},
		{"a.b", `{"a":{"b":2},"a.b":3}`, "3"},
		{"a.b", `{"a.b":3,"a":{"b":2}}`, "3"},
		{"a.b", `{"a":{"b":2},"a.b":null}`, ""},
		{"a.b", `{ "a" : { "x" : [ { "b" : 9 } , "}" ] , "b" : 2 } }`, "2"},
		{"a.b", `{"a":{"b":2,"b":4}}`, "4"},
		{"a.b", `{"\u0061":{"\u0062":2}}`, "2"},
		{"a.b", `{"a":"b"}`, ""},
		{"a.b", `{"a":[{"b":2}]}`, ""},
		{"a.b", `{"a":null}`, ""},
		{"a.b.c.d.e", `{"a":{"b":{"c":{"d":{"e":5}}}}}`, "5"},
		{"a.b.c", `{"a":{"b.c":6}}`, ""},
		{"a.", `{"a":{"":7}}`, "7"},
		{`a"b`, `{"a\"b":8}`, "8"},
		{"é.ü", `{"é":{"ü":9}}`, "9"},
		{"a", `{}`, ""},
		{"a", ` { } `, ""},
	} {
		m := measure(t, metering.MeterVersion{ValueProperty: c.path}, c.properties)
		if c.value == "" {
			require.Equal(t, metering.ValueMissing, m.Verdict, "%s of %s", c.path, c.properties)
			continue
		}
		require.Equal(t, metering.Counted, m.Verdict, "%s of %s", c.path, c.properties)
		require.Equal(t, c.value, m.Value.String(), "%s of %s", c.path, c.properties)
	}
}

func TestValuePropertyMustBeNumberOrNumericText(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("9", metering.MaxIntegerDigits)
	for _, c := range []struct{ json, value string }{
		{`1250`, "1250"},
		{`-1250`, "-1250"},
		{`1.25e3`, "1250"},
		{`"1250"`, "1250"},
		{`"1.25E+3"`, "1250"},
		{`"\u0031"`, "1"},
		{`0.30000000000000004`, "0.3"},
		{`0.0000000000005`, "0"},
		{`0.0000000000015`, "0.000000000002"},
		{`0.0000000000025`, "0.000000000002"},
		{`0.00000000000250000000001`, "0.000000000003"},
		{`-0.0000000000015`, "-0.000000000002"},
		{`1e-99`, "0"},
		{`0.` + strings.Repeat("0", 98) + `1`, "0"},
		{`5e-13`, "0"},
		{`0e99`, "0"},
		{`-0`, "0"},
		{large, large},
		{large + `.9999999999994`, large + ".999999999999"},
	} {
		m := measure(t, metering.MeterVersion{ValueProperty: "v"}, `{"v":`+c.json+`}`)
		require.Equal(t, metering.Counted, m.Verdict, c.json)
		require.Equal(t, c.value, m.Value.String(), c.json)
	}
	for _, unusable := range []string{
		`true`, `"x"`, `""`, `" 1"`, `"1 "`, `"+1"`, `"01"`, `"1."`, `"0x1"`, `"NaN"`, `"1e999999999"`, `{}`, `[1]`, `"1,5"`,
		`1e18`, `-1e18`, `1000000000000000000`, large + `.9999999999995`, `"` + strings.Repeat("1", 300) + `"`,
	} {
		require.Equal(t, metering.ValueInvalid, measure(t, metering.MeterVersion{ValueProperty: "v"}, `{"v":`+unusable+`}`).Verdict, unusable)
	}
	for _, missing := range []string{``, `{}`, `{"v":null}`, `{"V":1}`} {
		require.Equal(t, metering.ValueMissing, measure(t, metering.MeterVersion{ValueProperty: "v"}, missing).Verdict, missing)
	}
}

func TestFiltersExcludeAnEventBeforeItsValueIsRead(t *testing.T) {
	t.Parallel()
	g := metering.MeterVersion{ValueProperty: "v", Filters: []metering.Filter{filter(t, "kind", metering.FilterEq, `"chat"`)}}
	require.Equal(t, metering.FilteredOut, measure(t, g, `{"kind":"audio"}`).Verdict)
	require.Equal(t, metering.ValueMissing, measure(t, g, `{"kind":"chat"}`).Verdict)
}

func TestMeterDefinitionMeasuresValueAndGroup(t *testing.T) {
	t.Parallel()
	g := metering.MeterVersion{ValueProperty: "usage.tokens", GroupBy: []string{"region", "model.name"}}
	m := measure(t, g, `{"usage":{"tokens":"3"},"model":{"name":"a<b"}}`)
	require.Equal(t, "3", m.Value.String())
	require.Equal(t, `{"model.name":"a<b","region":null}`, string(m.Group.Key))
	again, err := g.GroupOf(m.Group.Key)
	require.NoError(t, err)
	require.Equal(t, m.Group, again, "the key is the properties of its own group")
	e := &metering.Event{Properties: json.RawMessage(`{"model":{"name":"a<b"}}`)}
	require.Equal(t, []string{"region"}, g.Missing(m.Group, e))
}

func TestErasedEventKeepsItsMeasuredValues(t *testing.T) {
	t.Parallel()
	g := metering.MeterVersion{ValueProperty: "tokens", Filters: []metering.Filter{filter(t, "model", metering.FilterEq, `"a"`)}}
	erased := func(properties string) metering.Event {
		return metering.Event{Value: metering.Whole(1), Erased: true, Properties: json.RawMessage(properties)}
	}
	kept := erased(fmt.Sprintf(`{"$measured":{%q:2.5}}`, g.DefinitionDigest()))
	verdict := func(g metering.MeterVersion, e metering.Event) string {
		m, err := g.Measure(&e)
		require.NoError(t, err)
		return fmt.Sprint(m.Verdict, " ", m.Value)
	}
	require.Equal(t, "counted 2.5", verdict(g, kept))
	require.Equal(t, "counted 1", verdict(metering.MeterVersion{}, kept), "a definition without properties needs nothing of them")
	require.Equal(t, "filtered_out 0", verdict(metering.MeterVersion{ValueProperty: "tokens"}, kept), "another definition")
	changed := metering.MeterVersion{MeterID: 7, ValueProperty: "tokens"}
	require.Equal(t, "counted 4", verdict(changed, erased(`{"$measured":{"mtr_7":4,"mtr_8":5}}`)), "a later definition of the same meter")
	require.Equal(t, "filtered_out 0", verdict(changed, erased(`{"$measured":{"mtr_8":5}}`)), "the meter is new")
	require.Equal(t, "counted 5", verdict(changed, erased(fmt.Sprintf(`{"$measured":{%q:5}}`, changed.DefinitionDigest()))), "another meter had its definition")
	require.Equal(t, "filtered_out 0", verdict(changed, erased(fmt.Sprintf(`{"$measured":{"mtr_7":null,%q:5}}`, changed.DefinitionDigest()))), "the meter did not count the event")
	require.Equal(t, "counted 4", verdict(changed, erased(fmt.Sprintf(`{"$measured":{"mtr_7":4,%q:5}}`, changed.DefinitionDigest()))), "its own value comes first")
	require.Equal(t, "filtered_out 0", verdict(g, erased(`{"tokens":9,"model":"a"}`)))
	require.Equal(t, "counted 9", verdict(g, metering.Event{Properties: json.RawMessage(`{"tokens":9,"model":"a","$measured":{}}`)}), "the name means nothing in other events")
}

func TestMeterDefinitionKeepsDigestAfterJSONRoundTrip(t *testing.T) {
	t.Parallel()
	g := metering.MeterVersion{ValueProperty: "v", Filters: []metering.Filter{filter(t, "a", metering.FilterIn, `1e2`, `"é\u2028<"`, `true`), filter(t, "b", metering.FilterExists)}}
	text, err := json.Marshal(g.Filters)
	require.NoError(t, err)
	again := metering.MeterVersion{ValueProperty: "v"}
	require.NoError(t, json.Unmarshal(text, &again.Filters))
	require.Equal(t, g.DefinitionDigest(), again.DefinitionDigest())
	require.True(t, g.SameCounting(again))
	again.Filters[0].Values = again.Filters[0].Values[:2]
	require.NotEqual(t, g.DefinitionDigest(), again.DefinitionDigest())
	require.False(t, g.SameCounting(again))
}

func TestMeterDefinitionsAreValidated(t *testing.T) {
	t.Parallel()
	values := func(literals ...string) (values []metering.FilterValue) {
		for _, literal := range literals {
			values = append(values, metering.ParseFilterValue(json.RawMessage(literal)))
		}
		return values
	}
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprint(i)
	}
	for _, c := range []struct {
		location, message string
		change            func(*metering.MeterVersion)
	}{
		{"body.value_property", "must have at most 5 names", func(g *metering.MeterVersion) { g.ValueProperty = "a.b.c.d.e.f" }},
		{"body.value_property", "must not begin with '$'", func(g *metering.MeterVersion) { g.ValueProperty = "$measured" }},
		{"body.value_property", "must have at most 255 characters", func(g *metering.MeterVersion) { g.ValueProperty = strings.Repeat("x", 256) }},
		{"body.group_by[0]", "must have at most 5 names", func(g *metering.MeterVersion) { g.GroupBy = []string{"a.b.c.d.e.f"} }},
		{"body.filters", "must have at most 10 filters", func(g *metering.MeterVersion) { g.Filters = make([]metering.Filter, 11) }},
		{"body.filters[0].property", "is required", func(g *metering.MeterVersion) { g.Filters = []metering.Filter{{Operator: metering.FilterExists}} }},
		{"body.filters[0].operator", "must be one of", func(g *metering.MeterVersion) { g.Filters = []metering.Filter{{Property: "a", Operator: "like"}} }},
		{"body.filters[0].values", "must have exactly one value; use in or not_in for several, because operator is eq", func(g *metering.MeterVersion) {
			g.Filters = []metering.Filter{{Property: "a", Operator: metering.FilterEq, Values: values("1", "2")}}
		}},
		{"body.filters[0].values", "must have 1 to 100 values", func(g *metering.MeterVersion) {
			g.Filters = []metering.Filter{{Property: "a", Operator: metering.FilterIn}}
		}},
		{"body.filters[0].values", "must have 1 to 100 values", func(g *metering.MeterVersion) {
			g.Filters = []metering.Filter{{Property: "a", Operator: metering.FilterNotIn, Values: values(many...)}}
		}},
		{"body.filters[0].values", "must be empty or omitted", func(g *metering.MeterVersion) {
			g.Filters = []metering.Filter{{Property: "a", Operator: metering.FilterExists, Values: values("1")}}
		}},
		{"body.filters[0].values[0]", "must be a number, because operator is gt", func(g *metering.MeterVersion) {
			g.Filters = []metering.Filter{{Property: "a", Operator: metering.FilterGt, Values: values(`"1"`)}}
		}},
		{"body.filters[0].values[1]", "must be a string, a number, true or false", func(g *metering.MeterVersion) {
			g.Filters = []metering.Filter{{Property: "a", Operator: metering.FilterIn, Values: values("1", "null")}}
		}},
		{"body.filters[0].values[0]", "must be a string, a number, true or false", func(g *metering.MeterVersion) {
			g.Filters = []metering.Filter{{Property: "a", Operator: metering.FilterEq, Values: values("[1]")}}
		}},
		{"body.filters[0].values[0]", "must be a string, a number, true or false", func(g *metering.MeterVersion) {
			g.Filters = []metering.Filter{{Property: "a", Operator: metering.FilterEq, Values: values("1e999")}}
		}},
		{"body.filters[0].values[0]", "must have at most 255 characters", func(g *metering.MeterVersion) {
			g.Filters = []metering.Filter{{Property: "a", Operator: metering.FilterEq, Values: values(`"` + strings.Repeat("x", 254) + `"`)}}
		}},
	} {
		g := metering.MeterVersion{Aggregation: metering.Sum}
		c.change(&g)
		var invalid *metering.Error
		require.ErrorAs(t, g.Validate(), &invalid, c.message)
		require.Equal(t, c.location, invalid.Fields[0].Location)
		require.Contains(t, invalid.Fields[0].Message, c.message)
	}
	m := metering.Meter{Slug: "a", EventType: "a", Unit: strings.Repeat("x", 65), Version: metering.MeterVersion{Aggregation: metering.Sum}}
	require.ErrorContains(t, m.Validate(), "must be at most 64 characters")
}

// benchProperties are the properties of a language model call.
const benchProperties = `{"model":"large-2026-10","provider":"example","stream":true,"usage":{"prompt_tokens":1250,"completion_tokens":310,"total_tokens":1560},"cost":0.030400000000000004}`

// BenchmarkMeasure measures events with one meter. Each iteration measures a new event, as ingest does.
func BenchmarkMeasure(b *testing.B) {
	selecting := metering.MeterVersion{ValueProperty: "usage.total_tokens", Filters: []metering.Filter{filter(b, "provider", metering.FilterEq, `"example"`), filter(b, "stream", metering.FilterEq, `true`)}}
	grouping := selecting
	grouping.GroupBy = []string{"model"}
	for _, c := range []struct {
		name string
		g    metering.MeterVersion
	}{
		{"plain", metering.MeterVersion{}},
		{"grouped", metering.MeterVersion{GroupBy: []string{"model"}}},
		{"nested value and two filters", selecting},
		{"nested value, two filters and a group", grouping},
	} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			sent := metering.Event{Value: metering.Whole(1), Properties: json.RawMessage(benchProperties)}
			for b.Loop() {
				e := sent
				m, err := c.g.Measure(&e)
				if err != nil || m.Verdict != metering.Counted {
					b.Fatal(m, err)
				}
			}
		})
	}
}

// BenchmarkMeasureByEightMeters measures one event by eight meters with paths and filters.
func BenchmarkMeasureByEightMeters(b *testing.B) {
	var meters []metering.MeterVersion
	for _, property := range []string{"usage.prompt_tokens", "usage.completion_tokens", "usage.total_tokens", "cost"} {
		for _, provider := range []metering.FilterOperator{metering.FilterEq, metering.FilterIn} {
			meters = append(meters, metering.MeterVersion{ValueProperty: property, Filters: []metering.Filter{filter(b, "provider", provider, `"example"`), filter(b, "stream", metering.FilterEq, `true`)}})
		}
	}
	b.ReportAllocs()
	sent := metering.Event{Value: metering.Whole(1), Properties: json.RawMessage(benchProperties)}
	for b.Loop() {
		e := sent
		for _, g := range meters {
			if m, err := g.Measure(&e); err != nil || m.Verdict != metering.Counted {
				b.Fatal(m, err)
			}
		}
	}
}
