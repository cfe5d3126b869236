package api_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
)

// aboutLength matches a message about the maximum length of a text.
var aboutLength = regexp.MustCompile(`length|bytes|at most`)

// TestLengthsAreCountedInCharacters checks the parameters and the top-level body fields of the document that
// have a maxLength. A text of maxLength code points is not refused for its length, regardless of its bytes. A text
// with one more code point is refused.
func TestLengthsAreCountedInCharacters(t *testing.T) {
	t.Parallel()
	document := olderDocument(t)
	b := setup(t)
	b.meter(t, "calls", "call")
	checked := 0
	for path, item := range document.Paths.Map() {
		for method, op := range item.Operations() {
			good := goodRequest(method, path, op)
			check := func(location string, most uint64, with func(text string) badRequest) {
				checked++
				for more := range uint64(2) {
					value := wide(location, int(most+more))
					require.Equal(t, int(most+more), utf8.RuneCountInString(value))
					r := with(value)
					for _, name := range []string{"external_id", "slug", "id", "tenant_id", "period", "meter", "type", "kind"} {
						r = r.with("path", name, goodValue(name))
					}
					a := b.send(t, r.method, r.path+"?"+r.query.Encode(), r.body, r.headers...)
					require.Less(t, a.status, 500, a.body)
					assert.Equal(t, more == 1, a.refusesLength(t, location), "%s %s %s: %d characters: %d %s", method, path, location, most+more, a.status, a.body)
				}
			}
			for _, p := range op.Parameters {
				if most := p.Value.Schema.Value.MaxLength; most != nil && p.Value.Name != "page_token" {
					check(p.Value.In+"."+p.Value.Name, *most, func(text string) badRequest { return good.with(p.Value.In, p.Value.Name, text) })
				}
			}
			if op.RequestBody == nil {
				continue
			}
			schema := op.RequestBody.Value.Content["application/json"].Schema.Value
			for name, property := range schema.Properties {
				most, form, location := property.Value.MaxLength, "%q", "body."+name
				if property.Value.Type.Is("array") {
					most, form, location = property.Value.Items.Value.MaxLength, "[%q]", location+"[0]"
				}
				if most != nil {
					check(location, *most, func(text string) badRequest {
						r, literal := good, fmt.Sprintf(form, text)
						r.body = strings.Replace(fmt.Sprintf(`{%q:%s,%s`, name, literal, goodJSON(schema, name)[1:]), ",}", "}", 1)
						return r
					})
				}
			}
		}
	}
	require.Greater(t, checked, 100)
	for _, name := range []string{"event_type", "customer_id", "idempotency_key"} {
		for more := range 2 {
			event := strings.Replace(`{"event_type":"call","customer_id":"acme","idempotency_key":"k"}`,
				fmt.Sprintf("%q:%q", name, map[string]string{"event_type": "call", "customer_id": "acme", "idempotency_key": "k"}[name]),
				fmt.Sprintf("%q:%q", name, strings.Repeat("😀", 255+more)), 1)
			a := b.send(t, "POST", "/v1/events/batch", `{"events":[`+event+`]}`)
			require.Contains(t, a.body, fmt.Sprintf(`"rejected":%d`, more))
		}
	}
}

// wide returns a text with this number of characters, and with as many bytes as the location allows.
func wide(location string, characters int) string {
	if strings.HasSuffix(location, ".email") {
		return strings.Repeat("é", characters-len("@example.com")) + "@example.com"
	}
	return strings.Repeat("😀", characters)
}

// refusesLength reports whether a response refuses the text at the location because of its length.
func (a answer) refusesLength(t *testing.T, location string) bool {
	t.Helper()
	if a.status < 400 {
		return false
	}
	var p api.Problem
	require.NoError(t, json.Unmarshal([]byte(a.body), &p), a.body)
	for _, e := range p.Errors {
		if e.Location == location && aboutLength.MatchString(e.Message) {
			return true
		}
	}
	return false
}
