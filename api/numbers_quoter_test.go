package api

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/odometer-metering/odometer/dev/histories"
	"github.com/odometer-metering/odometer/providers"
	"github.com/odometer-metering/odometer/providers/registry"
)

var quotedPlan = func() *decimalPlan {
	decimal := &decimalPlan{decimal: true}
	line := &decimalPlan{fields: map[string]*decimalPlan{"total": decimal, "count": {}, "properties": {}}}
	line.fields["more"] = &decimalPlan{items: line}
	line.fields["each"] = &decimalPlan{items: decimal}
	line.fields["prices"] = &decimalPlan{values: decimal}
	return &decimalPlan{fields: map[string]*decimalPlan{"data": {items: line}, "total": decimal}}
}()

func TestQuoterQuotesOnlyDecimals(t *testing.T) {
	t.Parallel()
	quoter := decimalQuoter{plan: quotedPlan}
	require.Equal(t,
		`{"total" : "-1e-7", "x":3,"data":[{"count":2,"total":"123456789012345678.123456789012","properties":{"total":1.5,"a":[1]},"more":[{"total":null},{"total":"0"}]},`+
			`{"each":["1","2.5"],"prices":{"a\"b":"1","c":"2"},"properties":{"each":[1]},"total":"7"}],"name":"total\":1,"}`,
		string(quoter.quote([]byte(
			`{"total" : -1e-7, "x":3,"data":[{"count":2,"total":123456789012345678.123456789012,"properties":{"total":1.5,"a":[1]},"more":[{"total":null},{"total":0}]},`+
				`{"each":[1,2.5],"prices":{"a\"b":1,"c":2},"properties":{"each":[1]},"total":7}],"name":"total\":1,"}`))))
}

// TestPropertyQuotingDoesNotDependOnSplitOfWrites checks that quoting adds only quotes to a JSON value, however the
// value is split into writes.
func TestPropertyQuotingDoesNotDependOnSplitOfWrites(t *testing.T) {
	t.Parallel()
	names := rapid.SampledFrom([]string{"data", "total", "count", "properties", "more", "each", "prices", `a"\`, "é{"})
	histories.Check(t, func(t *rapid.T) {
		var value func(depth int) any
		value = func(depth int) any {
			switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
			case kind == 0:
				return rapid.StringOf(rapid.RuneFrom([]rune(`"\{}[]:,1a`))).Draw(t, "text")
			case kind == 1:
				return nil
			case kind == 2 || depth == 0:
				return json.Number(rapid.SampledFrom([]string{"0", "-1.5", "2e9", "123456789012345678.123456789012"}).Draw(t, "number"))
			case kind == 3:
				items := []any{}
				for range rapid.IntRange(0, 3).Draw(t, "items") {
					items = append(items, value(depth-1))
				}
				return items
			}
			fields := map[string]any{}
			for range rapid.IntRange(0, 4).Draw(t, "fields") {
				fields[names.Draw(t, "name")] = value(depth - 1)
			}
			return fields
		}
		text, err := json.Marshal(map[string]any{"data": []any{value(4), value(4)}, "total": json.Number("1.50")})
		require.NoError(t, err)
		whole := decimalQuoter{plan: quotedPlan}
		wanted := string(whole.quote(text))
		require.Contains(t, wanted, `"total":"1.50"`)
		var parts strings.Builder
		quoter := decimalQuoter{plan: quotedPlan}
		for rest := text; len(rest) > 0; {
			size := rapid.IntRange(1, len(rest)).Draw(t, "size")
			parts.Write(quoter.quote(rest[:size]))
			rest = rest[size:]
		}
		require.Equal(t, wanted, parts.String())
		var before, after any
		require.NoError(t, decodeNumbers(text, &before))
		require.NoError(t, decodeNumbers([]byte(wanted), &after))
		requireQuoted(t, before, after)
	})
}

var decimalsOfAll = sync.OnceValue(func() map[string]map[string]*decimalPlan {
	return newServer(Deps{Providers: registry.New(providers.Guard{}, "")}).decimals
})

// Quoted returns the body of a response with its decimals as strings. It returns nil if the body is not JSON, or if the
// response has no field for decimals.
func Quoted(operation string, status int, body []byte) []byte {
	plan := decimalsOfAll()[operation][strconv.Itoa(status)]
	if plan == nil || !json.Valid(body) {
		return nil // such as CSV
	}
	return (&decimalQuoter{plan: plan}).quote(body)
}

// decodeNumbers decodes a JSON text, and keeps the digits of numbers.
func decodeNumbers(text []byte, into *any) error {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	return decoder.Decode(into)
}

// requireQuoted checks that the values are equal, except that numbers of before can be strings in after.
func requireQuoted(t *rapid.T, before, after any) {
	switch before := before.(type) {
	case map[string]any:
		require.Len(t, after, len(before))
		for name, field := range before {
			requireQuoted(t, field, after.(map[string]any)[name])
		}
	case []any:
		require.Len(t, after, len(before))
		for i := range before {
			requireQuoted(t, before[i], after.([]any)[i])
		}
	case json.Number:
		if quoted, ok := after.(string); ok {
			after = json.Number(quoted)
		}
		require.Equal(t, before, after)
	default:
		require.Equal(t, before, after)
	}
}
