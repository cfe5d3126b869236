package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

// alerted sends a request about alerts and decodes the response.
func alerted[T any](t testing.TB, b *bundle, status int, method, path, body string) (decoded T) {
	t.Helper()
	a := b.send(t, method, path, body)
	require.Equal(t, status, a.status, "%s %s: %s", method, path, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &decoded))
	return decoded
}

func TestAnAlertIsCreatedChangedAndDeleted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.ingest(t, "/v1/events", hello)
	created := alerted[client.Alert](t, b, 201, "POST", "/v1/alerts", `{"name":"budget","type":"usage","customer":"acme","meter":"calls","thresholds":[2,1]}`)
	require.Equal(t, "acme", *created.Customer)
	require.False(t, created.All)
	require.Equal(t, []json.Number{"1", "2"}, created.Thresholds)
	require.Equal(t, created, alerted[client.Alert](t, b, 200, "GET", "/v1/alerts/"+created.Id, ""))
	spend := alerted[client.Alert](t, b, 201, "POST", "/v1/alerts", `{"name":"spend","type":"spend","all":true,"thresholds":[0.5]}`)
	require.Equal(t, "USD", *spend.Currency, "the tenant's")
	silence := alerted[client.Alert](t, b, 201, "POST", "/v1/alerts", `{"name":"silence","type":"silence","all":true,"minutes":30}`)
	require.Equal(t, 30, int(*silence.Minutes))
	require.Empty(t, silence.Thresholds)
	first := alerted[client.ListAlert](t, b, 200, "GET", "/v1/alerts?page_size=2", "")
	require.Len(t, first.Data, 2)
	rest := alerted[client.ListAlert](t, b, 200, "GET", "/v1/alerts?page_size=2&page_token="+*first.NextPageToken, "")
	require.Equal(t, []client.Alert{silence}, rest.Data)

	require.NoError(t, b.store.Folds.Tenant(t.Context(), b.tenant.ID))
	require.NoError(t, b.store.Evaluations.Tenant(t.Context(), b.tenant.ID, b.now()))
	firings := alerted[client.ListFiring](t, b, 200, "GET", "/v1/alerts/"+created.Id+"/firings?page_size=1", "")
	require.Equal(t, json.Number("2"), firings.Data[0].Threshold, "newest first")
	require.Equal(t, "acme", firings.Data[0].CustomerExternalId)
	firings = alerted[client.ListFiring](t, b, 200, "GET", "/v1/alerts/"+created.Id+"/firings?page_size=1&page_token="+*firings.NextPageToken, "")
	require.Equal(t, json.Number("1"), firings.Data[0].Threshold)
	require.False(t, firings.HasMore)

	changed := alerted[client.Alert](t, b, 200, "PATCH", "/v1/alerts/"+created.Id, `{"name":"other","thresholds":[5],"enabled":false}`)
	require.Equal(t, []any{"other", false, []json.Number{"5"}}, []any{changed.Name, changed.Enabled, changed.Thresholds})
	require.Contains(t, b.send(t, "DELETE", "/v1/alerts/"+created.Id, "").body, `"deleted":true`)
	require.Equal(t, 404, b.send(t, "GET", "/v1/alerts/"+created.Id, "").status)
	require.Equal(t, 404, b.send(t, "GET", "/v1/alerts/"+created.Id+"/firings", "").status)
	require.Contains(t, b.send(t, "GET", "/v1/audit-log?action=alert.", "").body, "alert.delete")
}

func TestADryRunListsTheDaysOfFirings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.ingest(t, "/v1/events", hello)
	const body = `{"name":"budget","type":"usage","all":true,"meter":"calls","thresholds":[2,1000]}`
	run := alerted[client.DryRun](t, b, 200, "POST", "/v1/alerts/dry-run", body)
	require.Equal(t, 1, int(run.Customers))
	require.False(t, run.More)
	require.Len(t, run.Data, 1)
	require.Equal(t, []any{"acme", json.Number("2")}, []any{run.Data[0].CustomerExternalId, run.Data[0].Threshold})
	require.Equal(t, "acme", run.Highest.CustomerExternalId)
	require.Equal(t, json.Number("2"), run.Highest.Days[len(run.Highest.Days)-1].Value)
	require.Empty(t, alerted[client.ListAlert](t, b, 200, "GET", "/v1/alerts", "").Data)
	require.Equal(t, 422, b.send(t, "POST", "/v1/alerts/dry-run", `{"name":"x","type":"usage","all":true}`).status)
}

func TestAnAlertThatBreaksARuleIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call", "model")
	b.ingest(t, "/v1/events", hello)
	for body, message := range map[string]string{
		`"type":"usage","meter":"calls","thresholds":[1]`:                                            "body must have exactly one of customer, plan and all",
		`"type":"usage","all":true,"customer":"acme","meter":"calls","thresholds":[1]`:               "body must have exactly one of customer, plan and all",
		`"type":"usage","customer":"nobody","meter":"calls","thresholds":[1]`:                        "there is no customer with this external_id",
		`"type":"usage","plan":"nothing","meter":"calls","thresholds":[1]`:                           "there is no plan with this slug",
		`"type":"usage","all":true,"meter":"nothing","thresholds":[1]`:                               "there is no meter",
		`"type":"usage","all":true,"thresholds":[1]`:                                                 "body.meter is required for a usage alert",
		`"type":"usage","all":true,"meter":"calls"`:                                                  "body.thresholds must have 1 to 10 numbers",
		`"type":"usage","all":true,"meter":"calls","thresholds":[0]`:                                 "body.thresholds must have numbers above 0 only",
		`"type":"usage","all":true,"meter":"calls","thresholds":[1,1.0]`:                             "body.thresholds must have each number only once",
		`"type":"usage","all":true,"meter":"calls","thresholds":[1],"currency":"USD"`:                "body.currency is only for spend alerts",
		`"type":"usage","all":true,"meter":"calls","thresholds":[1],"minutes":5`:                     "body.minutes is only for silence alerts",
		`"type":"usage","all":true,"meter":"calls","thresholds":[1],"group":{}`:                      "body.group must have a value for each group_by property",
		`"type":"usage","all":true,"meter":"calls","thresholds":[1],"group":{"model":"a","other":1}`: "body.group must have only the group_by properties",
		`"type":"usage","all":true,"meter":"calls","thresholds":[1],"group":{"model":"\u0000"}`:      "body.group",
		`"type":"spend","all":true,"thresholds":[1],"currency":"XXX"`:                                "body.currency must be an active ISO 4217",
		`"type":"spend","all":true,"meter":"calls","thresholds":[1],"group":{"model":"a"}`:           "body.group is only for usage and quota alerts",
		`"type":"quota","all":true,"thresholds":[1000.01]`:                                           "body.thresholds must have percentages of at most 1000 with at most 2 decimals",
		`"type":"quota","all":true,"thresholds":[80.001]`:                                            "body.thresholds must have percentages of at most 1000 with at most 2 decimals",
		`"type":"quota","all":true,"thresholds":[80],"currency":"USD"`:                               "body.currency is only for spend alerts",
		`"type":"silence","all":true`:                                                                "body.minutes must be 1 to 10080",
		`"type":"silence","all":true,"minutes":5,"meter":"calls"`:                                    "body.meter is not for silence alerts",
		`"type":"silence","all":true,"minutes":5,"thresholds":[1]`:                                   "body.thresholds is not for silence alerts",
	} {
		a := b.send(t, "POST", "/v1/alerts", `{"name":"x",`+body+`}`)
		require.Contains(t, []int{404, 422}, a.status, body)
		require.Contains(t, strings.ReplaceAll(a.body, `\"`, `"`), message, body)
	}
}

func TestSpendAlertsShowChargesOnlyWithBillingRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	const spend, usage = `{"name":"spend","type":"spend","all":true,"thresholds":[1]}`, `{"name":"usage","type":"usage","all":true,"meter":"calls","thresholds":[1]}`
	created := alerted[client.Alert](t, b, 201, "POST", "/v1/alerts", spend)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleDeveloper)
	as := bearer(b.logIn(t, ada.Email).Token)
	for _, c := range [][3]string{
		{"POST", "/v1/alerts", spend},
		{"POST", "/v1/alerts/dry-run", spend},
		{"PATCH", "/v1/alerts/" + created.Id, `{"thresholds":[2]}`},
		{"GET", "/v1/alerts/" + created.Id + "/firings", ""},
	} {
		a := b.send(t, c[0], c[1], c[2], as)
		a.problem(t, 403, "forbidden")
		require.Contains(t, a.body, "Role developer lacks permission billing:read", c)
	}
	require.Equal(t, 200, b.send(t, "GET", "/v1/alerts", "", as).status)
	require.Equal(t, 200, b.send(t, "GET", "/v1/alerts/"+created.Id, "", as).status)
	require.Equal(t, 200, b.send(t, "POST", "/v1/alerts/dry-run", usage, as).status)
	require.Equal(t, 201, b.send(t, "POST", "/v1/alerts", usage, as).status)
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/alerts/"+created.Id, "", as).status)
}

func TestMessagesWithChargesRequireBillingRead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.ingest(t, "/v1/events", hello)
	hook := b.makeHook(t, `{"url":"https://example.com/hook","event_types":["alert.triggered"]}`)
	alerted[client.Alert](t, b, 201, "POST", "/v1/alerts", `{"name":"calls","type":"usage","all":true,"meter":"calls","thresholds":[1]}`)
	require.NoError(t, b.store.Evaluations.Tenant(t.Context(), b.tenant.ID, b.now()))
	path := "/v1/webhooks/" + hook.Id
	delivery := path + "/deliveries/" + alerted[client.ListDelivery](t, b, 200, "GET", path+"/deliveries", "").Data[0].Id

	developer := bearer(b.logIn(t, b.member(t, b.tenant.ID, email("ada"), metering.RoleDeveloper).Email).Token)
	biller := bearer(b.logIn(t, b.member(t, b.tenant.ID, email("bo"), metering.RoleBilling).Email).Token)
	for _, c := range [][3]string{
		{"POST", "/v1/webhooks", `{"url":"https://example.com/mine","event_types":["sync.failed","alert.triggered"]}`},
		{"POST", "/v1/webhooks", `{"url":"https://example.com/mine","event_types":["invoice.held"]}`},
		{"PATCH", path, `{"url":"https://example.com/mine"}`},
		{"PATCH", path, `{"event_types":["sync.failed"]}`},
		{"GET", delivery, ""},
		{"POST", delivery + "/redeliver", ""},
	} {
		a := b.send(t, c[0], c[1], c[2], developer)
		a.problem(t, 403, "forbidden")
		require.Contains(t, a.body, "Role developer lacks permission billing:read", c)
	}
	other := b.makeHook(t, `{"url":"https://example.com/mine","event_types":["sync.failed"]}`, developer)
	b.send(t, "PATCH", "/v1/webhooks/"+other.Id, `{"event_types":["sync.failed","alert.triggered"]}`, developer).problem(t, 403, "forbidden")
	for _, c := range [][3]string{
		{"PATCH", path, `{"url":"https://example.com/hook","event_types":["alert.triggered"],"description":"mine"}`},
		{"GET", path + "/deliveries", ""},
		{"PATCH", "/v1/webhooks/" + other.Id, `{"url":"https://example.com/other"}`},
	} {
		require.Equal(t, 200, b.send(t, c[0], c[1], c[2], developer).status, c)
	}
	require.Contains(t, b.send(t, "GET", delivery, "", biller).body, `alert.triggered`)
	require.Equal(t, 202, b.send(t, "POST", delivery+"/redeliver", "").status)
}
