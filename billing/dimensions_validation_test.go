package billing_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/billing"
)

// A price that an earlier price covers never applies. A price with fewer properties than an
// earlier one, or with another value, does.
func TestAPriceThatAnEarlierOneCoversIsRefused(t *testing.T) {
	t.Parallel()
	const covered = "would never apply"
	for matches, want := range map[string]string{
		`{"model":["a","b"]};{"model":["b"]}`:                              covered,
		`{"model":["a"]};{"model":["a"],"region":["eu"]}`:                  covered,
		`{"model":["c"]};{"model":["a"]};{"model":["a"]}`:                  covered,
		`{"model":["a"]};{"model":["a","b"]}`:                              "",
		`{"model":["a"],"region":["eu"]};{"model":["a"]}`:                  "",
		`{"model":["a"],"region":["eu"]};{"model":["a"],"region":["us"]}`:  "",
		`{"region":["eu"]};{"model":["a"]}`:                                "",
		`{"model":["1"]};{"model":[1]}`:                                    "",
		`{"model":["` + strings.Repeat("x", 1022) + `"]}`:                  "",
		`{"model":["` + strings.Repeat("x", 1023) + `"]}`:                  "must be at most 1024 bytes",
		`{"model":["a"]};{"region":["eu"]};{"model":["a"],"region":["*"]}`: covered,
	} {
		var prices []string
		for match := range strings.SplitSeq(matches, ";") {
			prices = append(prices, `{"match":`+match+`,"overage_rate":1}`)
		}
		var terms billing.Terms
		require.NoError(t, json.Unmarshal([]byte(`{"currency":"USD","dimensions":{"by":["model","region"],"prices":[`+strings.Join(prices, ",")+`]}}`), &terms))
		if want == "" {
			require.NoError(t, terms.Validate(), matches)
			continue
		}
		require.ErrorContains(t, terms.Validate(), want, matches)
	}
}
