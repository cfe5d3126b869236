package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// limited returns a tenant with the customer acme and a meter of events of type call, grouped by model. must sends
// a request, checks its status and returns the body of the response.
func limited(t *testing.T) (b *bundle, must func(status int, method, path, body string) string) {
	t.Helper()
	b = setup(t)
	must = func(status int, method, path, body string) string {
		t.Helper()
		answer := b.send(t, method, path, body)
		require.Equal(t, status, answer.status, "%s %s: %s", method, path, answer.body)
		return answer.body
	}
	must(http.StatusCreated, "POST", "/v1/meters", `{"slug":"calls","event_type":"call","aggregation":"sum","group_by":["model"]}`)
	must(http.StatusCreated, "POST", "/v1/customers", `{"external_id":"acme"}`)
	return b, must
}

func TestAQuotaIsSetListedAndDeleted(t *testing.T) {
	t.Parallel()
	_, must := limited(t)
	set := must(200, "PUT", "/v1/quotas", `{"customer":"acme","meter":"calls","limit":10.5,"mode":"hard","period":"month"}`)
	require.Contains(t, set, `"customer":"acme","plan":null,"meter":"calls","group":null,"limit":10.5,"mode":"hard","period":"month"`)
	require.Contains(t, must(200, "PUT", "/v1/quotas", `{"customer":"acme","meter":"calls","limit":null,"mode":"soft","period":"month"}`), `"limit":null,"mode":"soft"`)
	must(201, "POST", "/v1/plans", `{"slug":"pro","name":"Pro"}`)
	must(200, "PUT", "/v1/quotas", `{"plan":"pro","meter":"calls","group":{"model":"large"},"limit":5,"mode":"hard","period":"day"}`)
	require.Equal(t, 2, strings.Count(must(200, "GET", "/v1/quotas", ""), `"mode"`))
	list := must(200, "GET", "/v1/quotas?plan=pro", "")
	require.Equal(t, 1, strings.Count(list, `"mode"`))
	require.Contains(t, list, `"group":{"model":"large"}`)
	require.Equal(t, 1, strings.Count(must(200, "GET", "/v1/quotas?customer=acme&page_size=1", ""), `"mode"`))
	id := set[strings.Index(set, "quo_"):strings.Index(set, `","customer"`)]
	require.Contains(t, must(200, "DELETE", "/v1/quotas/"+id, ""), `"deleted":true`)
	must(404, "DELETE", "/v1/quotas/"+id, "")
	must(404, "DELETE", "/v1/quotas/5", "")
	log := must(200, "GET", "/v1/audit-log", "")
	require.Contains(t, log, "quota.set")
	require.Contains(t, log, "quota.delete")
}

func TestErrorOfInvalidQuotaNamesTheRule(t *testing.T) {
	t.Parallel()
	b, _ := limited(t)
	for _, c := range []struct{ body, says string }{
		{`{"meter":"calls","limit":1,"mode":"hard","period":"day"}`, "exactly one of customer and plan"},
		{`{"customer":"acme","plan":"pro","meter":"calls","limit":1,"mode":"hard","period":"day"}`, "exactly one of customer and plan"},
		{`{"customer":"acme","meter":"calls","mode":"hard","period":"day"}`, "limit"},
		{`{"customer":"acme","meter":"calls","limit":-1,"mode":"hard","period":"day"}`, "zero or more"},
		{`{"customer":"acme","meter":"calls","limit":"1","mode":"hard","period":"day"}`, "body.limit"},
		{`{"customer":"acme","meter":"calls","limit":1,"mode":"strict","period":"day"}`, "body.mode"},
		{`{"customer":"acme","meter":"calls","limit":1,"mode":"hard","period":"week"}`, "body.period"},
		{`{"customer":"acme","meter":"calls","group":{},"limit":1,"mode":"hard","period":"day"}`, "group_by propert"},
		{`{"customer":"acme","meter":"calls","group":{"model":"a","region":"b"},"limit":1,"mode":"hard","period":"day"}`, "only the group_by properties"},
		{`{"customer":"acme","meter":"calls","group":{"model":"\u0000"},"limit":1,"mode":"hard","period":"day"}`, "body.group"},
		{`{"customer":"acme","meter":"calls","group":{"model":1e999999},"limit":1,"mode":"hard","period":"day"}`, "body.group"},
		{`{"customer":"acme","meter":"calls","group":[],"limit":1,"mode":"hard","period":"day"}`, "body.group"},
	} {
		answer := b.send(t, "PUT", "/v1/quotas", c.body)
		require.Equal(t, 422, answer.status, "%s: %s", c.body, answer.body)
		require.Contains(t, answer.body, c.says, c.body)
	}
	for body, says := range map[string]string{
		`{"customer":"nobody","meter":"calls","limit":1,"mode":"hard","period":"day"}`: "customer",
		`{"plan":"none","meter":"calls","limit":1,"mode":"hard","period":"day"}`:       "plan",
		`{"customer":"acme","meter":"none","limit":1,"mode":"hard","period":"day"}`:    "meter",
	} {
		answer := b.send(t, "PUT", "/v1/quotas", body)
		require.Equal(t, 404, answer.status, answer.body)
		require.Contains(t, answer.body, says)
	}
}

func TestAReservationIsSettledExtendedAndReleased(t *testing.T) {
	t.Parallel()
	_, must := limited(t)
	must(200, "PUT", "/v1/quotas", `{"customer":"acme","meter":"calls","limit":10,"mode":"hard","period":"billing"}`)
	check := func(amount string) string {
		t.Helper()
		return must(200, "POST", "/v1/quotas/check", `{"checks":[{"customer":"acme","meter":"calls","amount":`+amount+`}]}`)
	}
	require.Contains(t, check("10"), `"allowed":true,"exceeded":false,"used":0,"reserved":0,"limit":10,"remaining":10,"resets_at":"`)
	require.Contains(t, must(201, "POST", "/v1/quotas/reserve", `{"id":"call-1","customer":"acme","amounts":[{"meter":"calls","amount":6}]}`), `"reservation_id":"call-1","allowed":true`)
	require.Contains(t, must(201, "POST", "/v1/quotas/reserve", `{"id":"call-1","customer":"acme","amounts":[{"meter":"calls","amount":6.0}]}`), `"call-1"`)
	must(409, "POST", "/v1/quotas/reserve", `{"id":"call-1","customer":"acme","amounts":[{"meter":"calls","amount":5}]}`)
	require.Contains(t, must(200, "POST", "/v1/quotas/reserve", `{"customer":"acme","amounts":[{"meter":"calls","amount":5}]}`), `"allowed":false,"quota_id":"quo_`)
	must(200, "POST", "/v1/quotas/reservations/call-1/extend", `{"expires_in":3600}`)

	const event = `{"events":[{"event_type":"call","customer_id":"acme","value":2.5,"properties":{"model":"a"}}]}`
	must(422, "POST", "/v1/quotas/reservations/call-1/settle", `{"events":[{"event_type":"call","customer_id":"acme","value":"many"}]}`)
	require.Contains(t, must(422, "POST", "/v1/quotas/reservations/call-1/settle", `{"events":[1]}`), `"location":"body.events[0]"`)
	require.Contains(t, must(422, "POST", "/v1/quotas/reservations/call-1/settle", strings.Replace(event, "acme", "other", 1)), "body.events[0].customer_id")
	first := must(200, "POST", "/v1/quotas/reservations/call-1/settle", event)
	require.Contains(t, first, `"accepted":1,"rejected":0,"duplicates":0`)
	require.Equal(t, first, must(200, "POST", "/v1/quotas/reservations/call-1/settle", event), "a repeat")
	must(409, "POST", "/v1/quotas/reservations/call-1/settle", strings.Replace(event, "2.5", "3", 1))
	must(409, "POST", "/v1/quotas/reservations/call-1/release", "")
	require.Contains(t, check("7.5"), `"allowed":true,"exceeded":false,"used":2.5,"reserved":0,"limit":10,"remaining":7.5`)
	require.Contains(t, check("7.6"), `"allowed":false,"exceeded":true`)

	made := must(201, "POST", "/v1/quotas/reserve", `{"customer":"acme","amounts":[{"meter":"calls","amount":7.5}],"expires_in":60}`)
	id := made[strings.Index(made, "rsv_"):strings.Index(made, `","allowed"`)]
	require.Contains(t, check("0"), `"reserved":7.5`)
	require.Contains(t, must(200, "POST", "/v1/quotas/reservations/"+id+"/release", ""), `"released":true`)
	must(200, "POST", "/v1/quotas/reservations/"+id+"/release", "")
	must(404, "POST", "/v1/quotas/reservations/none/release", "")
	must(404, "POST", "/v1/quotas/reservations/none/settle", event)
	must(404, "POST", "/v1/quotas/reservations/none/extend", `{"expires_in":1}`)
	require.Contains(t, check("7.5"), `"allowed":true`)
}

func TestEntitlementsAreFeaturesAndQuotas(t *testing.T) {
	t.Parallel()
	b, must := limited(t)
	require.Contains(t, must(200, "GET", "/v1/customers/acme/entitlements", ""), `"customer":"acme","plan":null,"features":{},"quotas":[]`)
	must(201, "POST", "/v1/plans", `{"slug":"pro","name":"Pro"}`)
	require.Contains(t, must(200, "PUT", "/v1/plans/pro/features", `{"features":{"sso":true,"seats":5,"tier":"gold"}}`), `"features":{`)
	for _, broken := range []string{`{"features":{"a":{}}}`, `{"features":{"a":[1]}}`, `{"features":{"a":null}}`, `{"features":[]}`, `{}`, `{"features":{"a":"\u0000"}}`} {
		answer := b.send(t, "PUT", "/v1/plans/pro/features", broken)
		require.Equal(t, 422, answer.status, "%s: %s", broken, answer.body)
	}
	must(200, "PUT", "/v1/quotas", `{"plan":"pro","meter":"calls","limit":10,"mode":"hard","period":"day"}`)
	must(200, "PUT", "/v1/customers/acme/plan", `{"plan":"pro"}`)
	shown := must(200, "GET", "/v1/customers/acme/entitlements", "")
	require.Contains(t, shown, `"plan":"pro"`)
	require.Contains(t, shown, `"seats":5`)
	require.Contains(t, shown, `"meter":"calls","group":null,"mode":"hard","period":"day","used":0,"reserved":0,"limit":10,"remaining":10`)
}
