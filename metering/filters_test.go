package metering_test

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/metering"
)

func TestParseGroupValue(t *testing.T) {
	for text, value := range map[string]string{
		`null`: `null`, `true`: `true`, `0`: `0`, `-0.0`: `0`, `1e2`: `100`, `"0"`: `"0"`, `"\u0041"`: `"A"`, `large`: `"large"`, ``: `""`,
		`NULL`: `"NULL"`, `01`: `"01"`, `+1`: `"+1"`, ` 1`: `" 1"`, `1e999`: `"1e999"`, `[1]`: `"[1]"`, `"a`: `"\"a"`, `"a" `: `"\"a\" "`, `"a""b"`: `"\"a\"\"b\""`,
		`"\u0000"`: `"\"\\u0000\""`, `"\ud800"`: `"\"\\ud800\""`, `<&>`: `"<&>"`,
	} {
		require.Equal(t, value, string(metering.ParseGroupValue(text)), text)
	}
}

func TestPropertyGroupFilterIsReadBackAsSameGroup(t *testing.T) {
	t.Parallel()
	histories.Check(t, func(rt *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.StringOf(rapid.SampledFrom([]rune(`"\u0e1-.nultrfase[{ `)))).Draw(rt, "text")
		quoted, err := json.Marshal(text)
		require.NoError(rt, err)
		group, err := metering.MeterVersion{GroupBy: []string{"p", "a&b"}}.GroupOf(json.RawMessage(`{"p":` + string(quoted) + `}`))
		require.NoError(rt, err)
		filter, err := metering.FilterOf(group.Key)
		require.NoError(rt, err)
		query, err := url.ParseQuery(filter)
		require.NoError(rt, err)
		require.Equal(rt, "null", string(metering.ParseGroupValue(query.Get("filter.a&b"))))
		var read string
		require.NoError(rt, json.Unmarshal(metering.ParseGroupValue(query.Get("filter.p")), &read))
		require.Equal(rt, text, read)
	})
}
