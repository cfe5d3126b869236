package api_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/dev/clock"
)

// TestEveryTimeIsParsedByOneRule checks every parameter and field of the document that accepts a time, so that it also
// covers new ones.
func TestEveryTimeIsParsedByOneRule(t *testing.T) {
	t.Parallel()
	document := olderDocument(t)
	b := setup(t, "America/New_York")
	b.meter(t, "calls", "call")
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`)
	var found []string
	for path, item := range document.Paths.Map() {
		for method, op := range item.Operations() {
			good := goodRequest(method, path, op)
			for _, name := range []string{"external_id", "slug", "id", "tenant_id", "period", "meter"} {
				good = good.with("path", name, goodValue(name))
			}
			for _, p := range op.Parameters {
				if p.Value.Schema.Value.Format == "date-time" {
					location := p.Value.In + "." + p.Value.Name
					found = append(found, op.OperationID+" "+location)
					b.requireOneRule(t, location, func(instant string) badRequest { return good.with(p.Value.In, p.Value.Name, instant) })
				}
			}
			if op.RequestBody == nil {
				continue
			}
			for location, body := range timesIn("body", op.RequestBody.Value.Content["application/json"].Schema.Value) {
				found = append(found, op.OperationID+" "+location)
				b.requireOneRule(t, location, func(instant string) badRequest {
					r := good
					literal, err := json.Marshal(instant)
					require.NoError(t, err)
					r.body = strings.Replace(body, aTime, string(literal), 1)
					return r
				})
			}
		}
	}
	slices.Sort(found)
	require.Equal(t, []string{
		"assign-plan body.effective_from", "create-api-key body.expires_at", "create-hmac-secret body.expires_at",
		"end-customer-pricing body.effective_from", "explain-billing query.at", "export-events query.end", "export-events query.start", "export-usage query.end", "export-usage query.start", "get-audit-log query.end", "get-audit-log query.start",
		"get-event-counts query.end", "get-event-counts query.start", "get-usage query.end", "get-usage query.start",
		"get-usage-breakdown query.end", "get-usage-breakdown query.start", "get-usage-summary query.end", "get-usage-summary query.start", "get-usage-total query.end", "get-usage-total query.start",
		"ingest-event body.timestamp", "ingest-events body.events[0].timestamp", "list-events query.end", "list-events query.start",
		"list-uncounted-events query.end", "list-uncounted-events query.start",
		"preview-customer-pricing body.effective_from",
		"preview-meter body.end", "preview-meter body.start", "preview-meter-change body.end", "preview-meter-change body.start",
		"preview-plan-pricing body.effective_from", "preview-pricing body.effective_from",
		"set-customer-pricing body.effective_from", "set-plan-pricing body.effective_from", "set-pricing body.effective_from", "settle-reservation body.events[0].timestamp",
	}, found)
}

// aTime is the placeholder for a time in the bodies that timesIn returns.
const aTime = `"<time>"`

// timesIn returns a body for each field of the schema that accepts a time, by the location of the field.
func timesIn(location string, schema *openapi3.Schema) map[string]string {
	bodies := map[string]string{}
	switch {
	case schema.Format == "date-time":
		bodies[location] = aTime
	case schema.Type.Is("object"):
		for name, property := range schema.Properties {
			for place, value := range timesIn(location+"."+name, property.Value) {
				fields := []string{fmt.Sprintf("%q:%s", name, value)}
				for _, other := range schema.Required {
					if other != name {
						fields = append(fields, fmt.Sprintf("%q:%s", other, goodJSON(schema.Properties[other].Value)))
					}
				}
				bodies[place] = "{" + strings.Join(fields, ",") + "}"
			}
		}
	case schema.Type.Is("array"):
		for place, value := range timesIn(location+"[0]", schema.Items.Value) {
			bodies[place] = "[" + value + "]"
		}
	}
	return bodies
}

// requireOneRule checks that the location refuses texts that are not RFC 3339, leap seconds and years outside 1 to
// 9999. The location must not refuse other times because of their form.
func (b *bundle) requireOneRule(t *testing.T, location string, with func(instant string) badRequest) {
	t.Helper()
	const form, leap, year = "must be RFC 3339 with seconds and an offset, such as 2026-11-01T00:00:00Z",
		"must not be a leap second: send 23:59:59 or the 00:00:00 after it", "must be in the years 1 to 9999 in UTC"
	broken := func(instant string) string {
		r := with(instant)
		a := b.send(t, r.method, r.path+"?"+r.query.Encode(), r.body)
		require.Less(t, a.status, 500, a.body)
		if strings.HasSuffix(r.path, "/batch") {
			require.Equal(t, 200, a.status, a.body)
			for _, rule := range []string{form, leap, year} {
				if strings.Contains(a.body, rule) {
					require.Contains(t, a.body, `"rejected":1`)
					require.Contains(t, a.body, `{"index":0,"code":"invalid_timestamp","message":"timestamp `+rule+`"}`)
					return rule
				}
			}
			return ""
		}
		if a.status < 400 {
			return ""
		}
		var p api.Problem
		require.NoError(t, json.Unmarshal([]byte(a.body), &p))
		for _, e := range p.Errors {
			if slices.Contains([]string{form, leap, year}, e.Message) {
				require.Equal(t, 422, a.status, a.body)
				require.Equal(t, location, e.Location, a.body)
				return e.Message
			}
		}
		return ""
	}
	soon := clock.Now().UTC().Add(time.Minute)
	for _, instant := range []string{
		soon.Format(time.RFC3339), strings.ToLower(soon.Format(time.RFC3339)), soon.Format("2006-01-02T15:04:05.123456789Z07:00"),
		soon.In(time.FixedZone("", 14*3600)).Format(time.RFC3339), soon.Format("2006-01-02T15:04:05") + "-00:00", "2026-11-01T00:00:00." + strings.Repeat("1", 60) + "+23:59",
	} {
		require.Empty(t, broken(instant), "%s %s", location, instant)
	}
	for instant, rule := range map[string]string{
		"2026-11-01": form, "2026-11-01T00:00Z": form, "2026-11-01T00:00:00": form, "2026-11-01T1:00:00Z": form, "2026-11-01T00:00:00,5Z": form,
		"2026-11-01T00:00:00+24:00": form, "2026-11-01T00:00:00-24:00": form, "2026-11-01T00:00:00+02:60": form, "2026-11-01 00:00:00Z": form,
		"2026-11-01T24:00:00Z": form, "2026-02-29T00:00:00Z": form, "tomorrow": form, "1793491200": form,
		"2016-12-31T23:59:60Z": leap, "9999-12-31T23:59:59-01:00": year, "0001-01-01T00:00:00+01:00": year,
	} {
		require.Equal(t, rule, broken(instant), "%s %s", location, instant)
	}
}

// TestDigitsBeyondMicrosecondsAreTruncatedEverywhere checks that an event at .9999999 is in the range that ends at
// the next second. A range that starts at .9999999 also contains this event.
func TestDigitsBeyondMicrosecondsAreTruncatedEverywhere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	second := clock.Now().UTC().Add(-time.Hour).Truncate(time.Second)
	fine := second.Format("2006-01-02T15:04:05") + ".9999999z"
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":5,"timestamp":"`+fine+`"}`)
	total := func(start, end string) string {
		return b.send(t, "GET", "/v1/usage/total?customer=acme&meter=calls&start="+url.QueryEscape(start)+"&end="+url.QueryEscape(end), "").body
	}
	next := second.Add(time.Second).Format(time.RFC3339)
	require.JSONEq(t, `{"total":5}`, total(second.Format(time.RFC3339), next))
	require.JSONEq(t, `{"total":5}`, total(fine, next))
	require.JSONEq(t, `{"total":0}`, total(next, second.Add(time.Minute).Format(time.RFC3339)))
	require.JSONEq(t, `{"total":0}`, total(second.Format(time.RFC3339), fine))
	require.Contains(t, b.send(t, "GET", "/v1/usage/export?customer=acme&start="+url.QueryEscape(fine), "").body, strings.TrimSuffix(fine, "9z")+"Z")
}
