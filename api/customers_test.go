package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

func TestACustomerIsCreatedOnceAndFound(t *testing.T) {
	t.Parallel()
	b := setup(t)
	provider := "cus_stripe"
	created, err := b.client.CreateCustomerWithResponse(t.Context(), nil, client.CreateCustomer{
		ExternalId: "acme", Name: new("Acme"), BillingProviderId: &provider, Metadata: &map[string]any{"plan": "gold"},
	})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, created.StatusCode(), string(created.Body))
	require.Equal(t, "acme", created.JSON201.ExternalId)
	require.Equal(t, b.tenant.ID.String(), created.JSON201.TenantId)
	require.Equal(t, map[string]any{"plan": "gold"}, created.JSON201.Metadata)

	found, err := b.client.GetCustomerWithResponse(t.Context(), "acme")
	require.NoError(t, err)
	require.Equal(t, created.JSON201, found.JSON200)

	b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`).problem(t, 409, "conflict")
	b.send(t, "GET", "/v1/customers/nobody", "").problem(t, 404, "not_found")
}

func TestAnUnsafeExternalIDIsFoundByQueryAndByPath(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const name = "a/b ?#%&../é"
	created, err := b.client.CreateCustomerWithResponse(t.Context(), nil, client.CreateCustomer{ExternalId: name})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, created.StatusCode(), string(created.Body))
	byQuery, err := b.client.GetCustomerByExternalIdWithResponse(t.Context(), &client.GetCustomerByExternalIdParams{ExternalId: name})
	require.NoError(t, err)
	require.Equal(t, created.JSON201, byQuery.JSON200)
	byPath, err := b.client.GetCustomerWithResponse(t.Context(), name)
	require.NoError(t, err)
	require.Equal(t, created.JSON201, byPath.JSON200)
}

func TestUpsertCreatesAndThenUpdatesCustomer(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, err := b.client.UpsertCustomerWithResponse(t.Context(), "acme", nil, client.CustomerFields{Name: new("Acme")})
	require.NoError(t, err)
	require.Equal(t, http.StatusCreated, first.StatusCode(), string(first.Body))
	second, err := b.client.UpsertCustomerWithResponse(t.Context(), "acme", nil, client.CustomerFields{Name: new("Acme Inc.")})
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, second.StatusCode())
	require.Equal(t, first.JSON201.Id, second.JSON200.Id)
	require.Equal(t, "Acme Inc.", second.JSON200.Name)
}

// TestUpsertKeepsOmittedFields checks that an upsert keeps the fields that its body omits. Linking a customer
// therefore clears no other field.
func TestUpsertKeepsOmittedFields(t *testing.T) {
	t.Parallel()
	b := setup(t)
	upsert := func(body string) string {
		a := b.send(t, "PUT", "/v1/customers/acme/upsert", body)
		require.Contains(t, []int{200, 201}, a.status, a.body)
		var c client.Customer
		require.NoError(t, json.Unmarshal([]byte(a.body), &c))
		linked := "none"
		if c.BillingProviderId != nil {
			linked = *c.BillingProviderId
		}
		return fmt.Sprint(c.Name, " ", linked, " ", c.Metadata)
	}
	require.Equal(t, " none map[]", upsert(`{}`))
	require.Equal(t, "Acme none map[plan:gold]", upsert(`{"name":"Acme","metadata":{"plan":"gold"},"external_id":"acme"}`))
	require.Equal(t, "Acme cus_1 map[plan:gold]", upsert(`{"billing_provider_id":"cus_1"}`))
	require.Equal(t, "Acme cus_1 map[seats:5]", upsert(`{"metadata":{"seats":5}}`))
	require.Equal(t, " cus_1 map[seats:5]", upsert(`{"name":""}`))
	require.Equal(t, " none map[]", upsert(`{"billing_provider_id":null,"metadata":{}}`))
	p := b.send(t, "PUT", "/v1/customers/acme/upsert", `{"external_id":"other"}`).problem(t, 422, "invalid")
	require.Equal(t, []api.FieldProblem{{Location: "body.external_id", Message: "must equal the external_id of the path, or be absent"}}, p.Errors)
	b.send(t, "PUT", "/v1/customers/acme/upsert", `{"billing_provider_id":""}`).problem(t, 422, "invalid")
}

// TestLinkingCustomerRequiresBillingWrite checks that linking needs billing:write, because the link selects
// the customer that the provider charges.
func TestLinkingCustomerRequiresBillingWrite(t *testing.T) {
	t.Parallel()
	b := setup(t)
	admin, developer := b.key, b.newKey(t, metering.ScopeReadWrite)
	b.send(t, "PUT", "/v1/customers/acme/upsert", `{"billing_provider_id":"cus_1"}`)
	b.key = developer
	refused := func(method, path, body string) {
		t.Helper()
		p := b.send(t, method, path, body).problem(t, 403, "forbidden")
		require.Contains(t, p.Detail, "billing:write")
		require.Contains(t, p.Detail, "body.billing_provider_id")
	}
	refused("POST", "/v1/customers", `{"external_id":"beta","billing_provider_id":"cus_2"}`)
	refused("PUT", "/v1/customers/beta/upsert", `{"billing_provider_id":"cus_2"}`)
	refused("PUT", "/v1/customers/acme/upsert", `{"billing_provider_id":"cus_2"}`)
	refused("PUT", "/v1/customers/acme/upsert", `{"billing_provider_id":null}`)
	require.Equal(t, 404, b.send(t, "GET", "/v1/customers/beta", "").status, "nothing is half stored")
	require.Equal(t, 200, b.send(t, "PUT", "/v1/customers/acme/upsert", `{"name":"Acme","billing_provider_id":"cus_1"}`).status, "as it is")
	require.Equal(t, 201, b.send(t, "PUT", "/v1/customers/beta/upsert", `{"billing_provider_id":null}`).status, "as it is")
	b.key = admin
	require.Equal(t, 1, strings.Count(b.send(t, "GET", "/v1/audit-log", "").body, `"customer.link"`))
	require.Equal(t, 200, b.send(t, "PUT", "/v1/customers/acme/upsert", `{"billing_provider_id":"cus_2"}`).status)
	require.Equal(t, 2, strings.Count(b.send(t, "GET", "/v1/audit-log", "").body, `"customer.link"`))
}

// TestProviderCustomerIsLinkedToAtMostOneCustomer checks that at most one customer of a tenant is linked to a
// customer at the provider.
func TestProviderCustomerIsLinkedToAtMostOneCustomer(t *testing.T) {
	t.Parallel()
	b, other := setup(t), setup(t)
	require.Equal(t, 201, b.send(t, "POST", "/v1/customers", `{"external_id":"acme","billing_provider_id":"cus_1"}`).status)
	for _, c := range [][3]string{
		{"POST", "/v1/customers", `{"external_id":"beta","billing_provider_id":"cus_1"}`},
		{"PUT", "/v1/customers/beta/upsert", `{"billing_provider_id":"cus_1"}`},
	} {
		require.Contains(t, b.send(t, c[0], c[1], c[2]).problem(t, 409, "conflict").Detail, "body.billing_provider_id")
		require.Equal(t, 404, b.send(t, "GET", "/v1/customers/beta", "").status, "nothing is half stored")
	}
	require.Equal(t, 201, b.send(t, "POST", "/v1/customers", `{"external_id":"beta"}`).status)
	b.send(t, "PUT", "/v1/customers/beta/upsert", `{"billing_provider_id":"cus_1"}`).problem(t, 409, "conflict")
	require.Equal(t, 201, other.send(t, "POST", "/v1/customers", `{"external_id":"beta","billing_provider_id":"cus_1"}`).status, "of another tenant")

	require.Equal(t, 200, b.send(t, "PUT", "/v1/customers/acme/upsert", `{"billing_provider_id":null}`).status)
	require.Equal(t, 200, b.send(t, "PUT", "/v1/customers/beta/upsert", `{"billing_provider_id":"cus_1"}`).status, "it is free again")
}

func TestPagesShowEveryCustomerOnce(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i := range 7 {
		b.send(t, "POST", "/v1/customers", fmt.Sprintf(`{"external_id":"c%d"}`, i))
	}
	var seen []string
	var token *string
	for {
		page, err := b.client.ListCustomersWithResponse(t.Context(), &client.ListCustomersParams{PageSize: new(int64(3)), PageToken: token})
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, page.StatusCode(), string(page.Body))
		for _, c := range page.JSON200.Data {
			seen = append(seen, c.ExternalId)
		}
		require.Equal(t, page.JSON200.HasMore, page.JSON200.NextPageToken != nil)
		if token = page.JSON200.NextPageToken; token == nil {
			break
		}
	}
	require.Equal(t, []string{"c0", "c1", "c2", "c3", "c4", "c5", "c6"}, seen)

	empty := setup(t).send(t, "GET", "/v1/customers", "")
	require.JSONEq(t, `{"data":[],"has_more":false,"next_page_token":null}`, empty.body)
}

func TestCustomersAreSearchedByNameAndByAnyID(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, body := range []string{
		`{"external_id":"acme","name":"Acme Inc."}`, `{"external_id":"contoso","name":"Contoso 100%","billing_provider_id":"cus_NffrFeUfNV2Hib"}`,
		`{"external_id":"ACME-2"}`, `{"external_id":"gone","name":"Acme, as it was"}`,
	} {
		require.Equal(t, http.StatusCreated, b.send(t, "POST", "/v1/customers", body).status)
	}
	require.Equal(t, http.StatusOK, b.send(t, "POST", "/v1/customers/gone/archive", "").status)
	contoso, err := b.client.GetCustomerWithResponse(t.Context(), "contoso")
	require.NoError(t, err)
	found := func(search string) (ids []string) {
		page, err := b.client.ListCustomersWithResponse(t.Context(), &client.ListCustomersParams{Search: &search})
		require.NoError(t, err)
		require.Equal(t, http.StatusOK, page.StatusCode(), string(page.Body))
		for _, c := range page.JSON200.Data {
			ids = append(ids, c.ExternalId)
		}
		return ids
	}
	for search, want := range map[string][]string{
		"acme": {"acme", "ACME-2"}, "INC": {"acme"}, "cme i": {"acme"},
		"cus_NffrFeUfNV2Hib": {"contoso"}, "cus_Nffr": nil, contoso.JSON200.Id: {"contoso"},
		"%": {"contoso"}, "_": nil, "'": nil, "nobody": nil,
	} {
		require.Equal(t, want, found(search), search)
	}
	for _, id := range []string{"ÄPFEL", "äpfelmus", "Straße", "ΟΔΟΣΑ", "οδος", "ŁÓDŹ", "ЁЛКА", "ǅep", "ﬁx", "İzmir", "ılık", "ÆØÅ", "Ⅷ", "K"} {
		body, err := json.Marshal(map[string]string{"external_id": id, "name": "name of " + id})
		require.NoError(t, err)
		require.Equal(t, http.StatusCreated, b.send(t, "POST", "/v1/customers", string(body)).status)
		for _, search := range []string{id, strings.ToUpper(id), "name of " + id, string([]rune(id)[:1])} {
			require.Contains(t, found(search), id, "%q", search)
		}
	}
	require.Equal(t, []string{"ÄPFEL", "äpfelmus"}, found("äpfel"))
	require.Equal(t, []string{"ΟΔΟΣΑ", "οδος"}, found("ΟΔΟΣ"))
	p := b.send(t, "GET", "/v1/customers?search=a%00", "").problem(t, 422, "invalid")
	require.Equal(t, "query.search", p.Errors[0].Location)
}
