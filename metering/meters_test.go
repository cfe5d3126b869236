package metering_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"math/big"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/metering"
)

func groupOf(t require.TestingT, properties string, groupBy ...string) metering.Group {
	group, err := metering.MeterVersion{GroupBy: groupBy}.GroupOf(json.RawMessage(properties))
	require.NoError(t, err)
	return group
}

func TestGroupOf(t *testing.T) {
	t.Run("WithoutGroupByThereIsOneGroup", func(t *testing.T) {
		for _, properties := range []string{"", "{}", `{"model":"gpt"}`} {
			require.Equal(t, metering.NoGroup, groupOf(t, properties))
		}
		require.Equal(t, "{}", string(metering.NoGroup.Key))
	})

	t.Run("AMissingPropertyIsNull", func(t *testing.T) {
		for _, properties := range []string{"", "{}", `{"model":null}`, `{"other":1}`} {
			require.JSONEq(t, `{"model":null}`, string(groupOf(t, properties, "model").Key))
		}
		require.NotEqual(t, groupOf(t, `{}`, "model").ID, groupOf(t, `{"model":"null"}`, "model").ID)
		require.NotEqual(t, groupOf(t, `{}`, "model").ID, groupOf(t, `{"model":""}`, "model").ID)
	})

	t.Run("TheOrderOfGroupByAndOfPropertiesDoesNotMatter", func(t *testing.T) {
		a := groupOf(t, `{"model":"gpt","region":"eu","noise":1}`, "model", "region")
		b := groupOf(t, `{"region":"eu","model":"gpt"}`, "region", "model")
		require.Equal(t, a, b)
		require.Equal(t, `{"model":"gpt","region":"eu"}`, string(a.Key))
	})

	// Each line lists spellings of one value, so each line is one group. Some are the spellings of jsonb.
	same := [][]string{
		{`1`, `1.0`, `1e0`, `1E+0`, `10e-1`, `0.1e1`, `1.000000000000000000000000`},
		{`-0.5`, `-5e-1`, `-0.50`},
		{`0`, `-0`, `0.00`, `0e9`, `-0.0e-9`},
		{`100`, `1e2`, `100.0`},
		{`1e99`, "1" + strings.Repeat("0", 99)},
		{`1e-99`, "0." + strings.Repeat("0", 98) + "1"},
		// The client sends at most 128 characters, and jsonb writes more than 200.
		{`1.` + strings.Repeat("0", 119) + `5e-99`, "0." + strings.Repeat("0", 98) + "1" + strings.Repeat("0", 119) + "5"},
		{`1.5` + strings.Repeat("0", 120) + `e-99`, "0." + strings.Repeat("0", 98) + "15" + strings.Repeat("0", 120)},
		{`"1"`},
		{`"1.0"`},
		{`true`},
		{`"true"`},
		{`"é<&>"`, `"\u00e9\u003c\u0026>"`},
		{`"/"`, `"\/"`},
		{`{"b":1.0,"a":[1e2, "x"]}`, `{"a": [100, "x"], "b": 1}`, `{"a":[100.00,"x"],"b":0,"b":1}`},
		{`[]`, `[ ]`},
		{`{}`},
		{`[1,2]`, `[1.0, 2]`},
		{`[2,1]`},
	}
	t.Run("AValueIsOneGroupHoweverWritten", func(t *testing.T) {
		seen := make(map[metering.GroupID]string)
		for _, line := range same {
			first := groupOf(t, `{"a":`+line[0]+`}`, "a")
			require.Empty(t, seen[first.ID], "%s is in the group of %s", line[0], seen[first.ID])
			seen[first.ID] = line[0]
			for _, other := range line {
				require.Equal(t, first, groupOf(t, `{"a":`+other+`}`, "a"), "%s and %s", line[0], other)
				require.Equal(t, groupOf(t, `{"a":[`+line[0]+`]}`, "a"), groupOf(t, `{"a":[`+other+`]}`, "a"), "[%s] and [%s]", line[0], other)
			}
		}
	})

	t.Run("OfAPropertyNamedTwiceTheLastCountsAsInTheDatabase", func(t *testing.T) {
		require.Equal(t, groupOf(t, `{"a":2}`, "a"), groupOf(t, `{"a":1,"\u0061":2}`, "a"))
	})

	t.Run("AnObjectIsItsTextInOneForm", func(t *testing.T) {
		require.Equal(t, `{"a":"{\"x\":[1,null]}"}`, string(groupOf(t, `{"a": {"x": [1.0, null]}}`, "a").Key))
	})

	t.Run("TheOtherGroupIsNobodys", func(t *testing.T) {
		require.NotEqual(t, metering.OtherGroup.ID, groupOf(t, `{"$other":true}`).ID)
		require.Error(t, metering.MeterVersion{Aggregation: metering.Sum, GroupBy: []string{"$other"}}.Validate())
	})

	t.Run("WhatIsNoObjectIsAnError", func(t *testing.T) {
		for _, properties := range []string{"[]", "1", "{", "x"} {
			_, err := metering.MeterVersion{GroupBy: []string{"a"}}.GroupOf(json.RawMessage(properties))
			require.Error(t, err, properties)
		}
	})

	t.Run("ANumberIsItsValueAndNothingElse", rapid.MakeCheck(func(t *rapid.T) {
		number := rapid.StringMatching(`-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,2})?`)
		a, b := number.Draw(t, "a"), number.Draw(t, "b")
		x, ok := new(big.Rat).SetString(a)
		require.True(t, ok)
		y, ok := new(big.Rat).SetString(b)
		require.True(t, ok)
		require.Equal(t, x.Cmp(y) == 0, groupOf(t, `{"a":`+a+`}`, "a").ID == groupOf(t, `{"a":`+b+`}`, "a").ID)
		require.Equal(t, groupOf(t, `{"a":`+a+`}`, "a"), groupOf(t, `{"a":`+rewritten(t, a, x)+`}`, "a"))
	}))
}

// rewritten returns a number as jsonb writes it: without an exponent, and with all decimals of the
// original.
func rewritten(t *rapid.T, number string, value *big.Rat) string {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(number), "e")
	_, decimals, _ := strings.Cut(mantissa, ".")
	shift, err := strconv.Atoi(cmp.Or(exponent, "0"))
	require.NoError(t, err)
	return value.FloatString(max(len(decimals)-shift, 0))
}

func FuzzGroupOf(f *testing.F) {
	for _, seed := range []string{`{"a":1.0}`, `{"a":"\ud800","b":[1e2,{"a":null}]}`, `{"a":1e999999999}`, `{"a":{"b":{}}}`, `{"\u0061":1,"a":2}`} {
		f.Add([]byte(seed))
	}
	version := metering.MeterVersion{GroupBy: []string{"a", "b"}}
	f.Fuzz(func(t *testing.T, properties []byte) {
		group, err := version.GroupOf(properties)
		if err != nil {
			return
		}
		var key map[string]any
		decoder := json.NewDecoder(bytes.NewReader(group.Key))
		decoder.UseNumber()
		require.NoError(t, decoder.Decode(&key), "%s", group.Key)
		require.Len(t, key, 2)
		for _, value := range key {
			switch value.(type) {
			case nil, bool, json.Number, string:
			default:
				t.Fatalf("%s nests", group.Key)
			}
		}
		again, err := version.GroupOf(properties)
		require.NoError(t, err)
		require.Equal(t, group, again)
	})
}

func TestMeterValidate(t *testing.T) {
	good := func() metering.Meter {
		return metering.Meter{Slug: "api-calls_2", EventType: "call", Version: metering.MeterVersion{Aggregation: metering.Sum, GroupBy: []string{"model", "region"}}}
	}
	require.NoError(t, good().Validate())
	for location, change := range map[string]func(*metering.Meter){
		"body.slug":        func(m *metering.Meter) { m.Slug = "Calls" },
		"body.event_type":  func(m *metering.Meter) { m.EventType = "" },
		"body.name":        func(m *metering.Meter) { m.Name = strings.Repeat("x", 256) },
		"body.aggregation": func(m *metering.Meter) { m.Version.Aggregation = "max" },
		"body.group_by":    func(m *metering.Meter) { m.Version.GroupBy = strings.Split("a b c d e f", " ") },
		"body.group_by[0]": func(m *metering.Meter) { m.Version.GroupBy = []string{"$other"} },
		"body.group_by[1]": func(m *metering.Meter) { m.Version.GroupBy = []string{"a", "a"} },
		"body.group_by[2]": func(m *metering.Meter) { m.Version.GroupBy = []string{"a", "b", "\x00"} },
	} {
		t.Run("ABad "+location+" is refused by name", func(t *testing.T) {
			m := good()
			change(&m)
			var err *metering.Error
			require.ErrorAs(t, m.Validate(), &err)
			require.Equal(t, metering.CodeInvalid, err.Code)
			require.Equal(t, location, err.Fields[0].Location)
		})
	}
	for _, slug := range []string{"", "-a", "_a", "a b", "a/b", "ä", "a\n", strings.Repeat("a", 65)} {
		m := good()
		m.Slug = slug
		require.Error(t, m.Validate(), "%q", slug)
	}
}

func TestSameCountingComparesDefinitions(t *testing.T) {
	g := metering.MeterVersion{ID: 1, EventType: "call", Aggregation: metering.Sum, GroupBy: []string{"a"}, Timezone: "UTC", Epoch: 1, Status: metering.Complete}
	same := g
	same.ID, same.Epoch, same.Status = 2, 3, metering.Backfilling
	require.True(t, g.SameCounting(same))
	for name, change := range map[string]func(*metering.MeterVersion){
		"type":        func(g *metering.MeterVersion) { g.EventType = "other" },
		"aggregation": func(g *metering.MeterVersion) { g.Aggregation = metering.Count },
		"groups":      func(g *metering.MeterVersion) { g.GroupBy = nil },
		"zone":        func(g *metering.MeterVersion) { g.Timezone = "Asia/Kathmandu" },
	} {
		other := g
		change(&other)
		require.False(t, g.SameCounting(other), name)
	}
}
