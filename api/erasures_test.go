package api_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestErasingCustomerRequiresConfirmAndKeepsTotals(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.meter(t, "calls", "call")
	b.send(t, "POST", "/v1/customers", `{"external_id":"acme","name":"Ada Lovelace"}`)
	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":5}`)
	const path = "/v1/customers/acme/erase"
	p := b.send(t, "POST", path, `{"confirm":"acm","reason":"asked for"}`).problem(t, 422, "invalid")
	require.Equal(t, "body.confirm", p.Errors[0].Location)
	b.send(t, "POST", path, `{"confirm":"acme"}`).problem(t, 422, "invalid")
	b.send(t, "POST", "/v1/customers/nobody/erase", `{"confirm":"nobody","reason":"asked for"}`).problem(t, 404, "not_found")

	a := b.send(t, "POST", path, `{"confirm":"acme","reason":"asked for"}`)
	require.Equal(t, 202, a.status, a.body)
	require.NotContains(t, a.body, "Lovelace")
	require.Regexp(t, `"external_id":"erased-\d+"`, a.body)
	require.Regexp(t, `"erased_at":"20`, a.body)
	b.send(t, "GET", "/v1/customers/acme", "").problem(t, 404, "not_found")
	audited := b.audited(t, "customer.erase")
	require.Len(t, audited, 1)
	require.Equal(t, "asked for", audited[0].Reason)
	require.Equal(t, `{"total":5}`, b.total(t, "erased-"+audited[0].Resource[len("cus_"):]))

	erased := "erased-" + audited[0].Resource[len("cus_"):]
	require.Contains(t, b.send(t, "GET", "/v1/customers/by-id?id="+audited[0].Resource, "").body, erased)
	b.send(t, "GET", "/v1/customers/by-id?id=cus_999999", "").problem(t, 404, "not_found")
	b.send(t, "GET", "/v1/customers/by-id?id=acme", "").problem(t, 404, "not_found")
	b.send(t, "POST", "/v1/events", `{"event_type":"call","customer_id":"`+erased+`"}`).problem(t, 422, "invalid")
	b.send(t, "PUT", "/v1/customers/"+erased+"/upsert", `{"name":"Ada"}`).problem(t, 422, "invalid")
	b.send(t, "POST", "/v1/customers", `{"external_id":"erased-7"}`).problem(t, 422, "invalid")

	b.ingest(t, "/v1/events", `{"event_type":"call","customer_id":"acme","value":7}`)
	require.Equal(t, `{"total":7}`, b.total(t, "acme"), "who comes back is another customer")
	require.Equal(t, `{"total":5}`, b.total(t, "erased-"+audited[0].Resource[len("cus_"):]))
}
