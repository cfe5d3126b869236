package main_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/dev/proc"
)

// A name and a number that are hard to transfer unchanged.
const (
	awkward = `a/b ?#%é`
	precise = "123456789012345678.123456789012"
)

// running is a system with two replicas of the API and a worker. Tests know the replicas only by their base URLs.
type running struct {
	system   *proc.System
	replicas []string
}

// owner contains everything that a user of the service gets: a base URL, a tenant's id and its admin key.
type owner struct {
	*client.ClientWithResponses
	url, tenant, key string
}

// owner creates a tenant with an admin key.
func (r running) owner(t testing.TB) owner {
	t.Helper()
	id, key := r.system.Tenant(t)
	return owner{proc.Dial(t, r.replicas[0], key), r.replicas[0], id, key}
}

// at returns the same owner at another replica.
func (o owner) at(t testing.TB, url string) owner {
	t.Helper()
	return owner{proc.Dial(t, url, o.key), url, o.tenant, o.key}
}

// TestRunningServiceKeepsItsAPIContract checks that running processes keep the promises to users of the service,
// section by section.
func TestRunningServiceKeepsItsAPIContract(t *testing.T) {
	_, url := dbtest.Fresh(t)
	system := proc.New(t, proc.Config{DatabaseURL: url, TemporalAddress: temporalAddress(t)})
	r := running{system, []string{system.API(t).URL, system.API(t).URL}}
	system.Worker(t)
	for name, section := range map[string]func(*testing.T, running){
		"Customers": customers, "CustomerPagesAreStable": customerPages, "APIKeys": apiKeys, "Events": events,
		"ARepeatCountsOnce": repeats, "BatchesAtOnceCountOnce": batchesAtOnce, "Usage": usage, "UsagePages": usagePages,
		"Comparison": comparison, "DigitsSurvive": digits, "ExportAsJSON": exportJSON, "ExportAsCSV": exportCSV,
		"Pricing": pricing, "Billing": billing, "Signatures": signatures, "Scopes": scopes, "Problems": problems,
		"RateLimit": rateLimit, "TenantsAreApart": tenantsApart, "ErasedCustomers": erasedCustomers, "ArchivedCustomers": archivedCustomers,
	} {
		t.Run(name, func(t *testing.T) { t.Parallel(); section(t, r) })
	}
}

// requireShape compares a JSON text with a template. The text must contain every name of the template. A string
// in the template is the kind of the value: "string", "number", "integer", "boolean", "object" or "time". A kind
// with a "?" also allows null. Objects, and every item of an array, must have the shape in the template.
func requireShape(t testing.TB, template string, text []byte) {
	t.Helper()
	var want, got any
	require.NoError(t, json.Unmarshal([]byte(template), &want), template)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	require.NoError(t, decoder.Decode(&got), string(text))
	shaped(t, "body", want, got)
}

// shaped requires that a part of a JSON text has the shape of a part of the template.
func shaped(t testing.TB, place string, want, got any) {
	t.Helper()
	switch want := want.(type) {
	case map[string]any:
		object, ok := got.(map[string]any)
		require.True(t, ok, "%s is no object: %v", place, got)
		for name, inner := range want {
			require.Contains(t, object, name, place)
			shaped(t, place+"."+name, inner, object[name])
		}
	case []any:
		items, ok := got.([]any)
		require.True(t, ok, "%s is no array: %v", place, got)
		require.NotEmpty(t, items, place)
		for i, item := range items {
			shaped(t, fmt.Sprintf("%s[%d]", place, i), want[0], item)
		}
	case string:
		kind, nullable := strings.CutSuffix(want, "?")
		if got == nil && nullable {
			return
		}
		require.True(t, isOfKind(kind, got), "%s is no %s: %v", place, kind, got)
	}
}

// isOfKind reports whether a JSON value is of a kind, as requireShape defines kinds.
func isOfKind(kind string, value any) bool {
	text, isText := value.(string)
	number, isNumber := value.(json.Number)
	switch kind {
	case "string":
		return isText
	case "time": // ISO 8601, UTC
		_, err := time.Parse(time.RFC3339Nano, text)
		return err == nil && strings.HasSuffix(text, "Z")
	case "number":
		return isNumber && !strings.ContainsAny(number.String(), "eE")
	case "integer":
		_, err := number.Int64()
		return err == nil
	case "boolean":
		_, ok := value.(bool)
		return ok
	case "object":
		_, ok := value.(map[string]any)
		return ok
	}
	return false
}

const customerShape = `{"id":"string","tenant_id":"string","external_id":"string","name":"string","billing_provider_id":"string?","metadata":"object","created_at":"time"}`

// customers creates, reads and upserts customers, including external IDs that are hard to transfer in a path.
func customers(t *testing.T, r running) {
	o, ctx := r.owner(t), t.Context()
	made, err := o.CreateCustomerWithResponse(ctx, nil, client.CreateCustomer{
		ExternalId: awkward, Name: new("Äcme"), BillingProviderId: new("cus_9"), Metadata: &map[string]any{"plan": "gold", "deep": map[string]any{"n": 1.0}},
	})
	require.NoError(t, err)
	require.Equal(t, 201, made.StatusCode(), string(made.Body))
	requireShape(t, customerShape, made.Body)
	require.Equal(t, o.tenant, made.JSON201.TenantId)
	require.Equal(t, awkward, made.JSON201.ExternalId)
	require.Equal(t, map[string]any{"plan": "gold", "deep": map[string]any{"n": 1.0}}, made.JSON201.Metadata)

	least, err := o.CreateCustomerWithResponse(ctx, nil, client.CreateCustomer{ExternalId: "least"})
	require.NoError(t, err)
	requireShape(t, customerShape, least.Body)
	require.Nil(t, least.JSON201.BillingProviderId)
	require.Equal(t, map[string]any{}, least.JSON201.Metadata)

	byPath, err := o.GetCustomerWithResponse(ctx, awkward)
	require.NoError(t, err)
	require.Equal(t, made.JSON201, byPath.JSON200)
	byQuery, err := o.GetCustomerByExternalIdWithResponse(ctx, &client.GetCustomerByExternalIdParams{ExternalId: awkward})
	require.NoError(t, err)
	require.Equal(t, made.JSON201, byQuery.JSON200)

	replaced, err := o.UpsertCustomerWithResponse(ctx, awkward, nil, client.CustomerFields{Name: new("Acme 2")})
	require.NoError(t, err)
	require.Equal(t, 200, replaced.StatusCode(), string(replaced.Body))
	require.Equal(t, made.JSON201.Id, replaced.JSON200.Id)
	require.Equal(t, "Acme 2", replaced.JSON200.Name)
	created, err := o.UpsertCustomerWithResponse(ctx, awkward+"2", nil, client.CustomerFields{})
	require.NoError(t, err)
	require.Equal(t, 201, created.StatusCode(), string(created.Body))
	require.Equal(t, awkward+"2", created.JSON201.ExternalId)

	for _, odd := range []string{"..", ".", "by-external-id", "+", "a%2Fb", "'", "日本"} {
		_, err := o.CreateCustomerWithResponse(ctx, nil, client.CreateCustomer{ExternalId: odd})
		require.NoError(t, err)
		found, err := o.GetCustomerByExternalIdWithResponse(ctx, &client.GetCustomerByExternalIdParams{ExternalId: odd})
		require.NoError(t, err)
		require.Equal(t, 200, found.StatusCode(), "%s %s", odd, found.Body)
		require.Equal(t, odd, found.JSON200.ExternalId)
	}
}

// customerPages checks that pages show each customer once while customers are added, and that an invalid page token
// returns 422.
func customerPages(t *testing.T, r running) {
	o := r.owner(t)
	add := func(name string) {
		a, err := o.CreateCustomerWithResponse(t.Context(), nil, client.CreateCustomer{ExternalId: name})
		require.NoError(t, err)
		require.Equal(t, 201, a.StatusCode(), string(a.Body))
	}
	for i := range 9 {
		add(fmt.Sprint("before-", i))
	}
	seen := map[string]int{}
	var token *string
	for page := 0; ; page++ {
		// The next page is read from the other replica, after rows were added.
		a, err := o.at(t, r.replicas[page%2]).ListCustomersWithResponse(t.Context(), &client.ListCustomersParams{PageSize: new(int64(2)), PageToken: token})
		require.NoError(t, err)
		requireShape(t, `{"data":[`+customerShape+`],"has_more":"boolean","next_page_token":"string?"}`, a.Body)
		require.Equal(t, a.JSON200.NextPageToken != nil, a.JSON200.HasMore)
		for _, c := range a.JSON200.Data {
			seen[c.ExternalId]++
		}
		if token = a.JSON200.NextPageToken; token == nil {
			break
		}
		if page < 3 {
			add(fmt.Sprint("meanwhile-", page))
		}
	}
	for name, times := range seen {
		require.Equal(t, 1, times, name)
	}
	for i := range 9 {
		require.Contains(t, seen, fmt.Sprint("before-", i))
	}
	foreign, err := r.owner(t).ListCustomersWithResponse(t.Context(), &client.ListCustomersParams{PageToken: new("AAAA")})
	require.NoError(t, err)
	require.Equal(t, 422, foreign.StatusCode())
}

// apiKeys creates, lists, uses, rotates and revokes API keys.
func apiKeys(t *testing.T, r running) {
	o, ctx := r.owner(t), t.Context()
	secrets := map[string]string{}
	for scope, prefix := range map[string]string{"admin": "svc_adm_", "read_write": "svc_rw_", "read_only": "svc_ro_", "ingest_only": "svc_ink_"} {
		made, err := o.CreateApiKeyWithResponse(ctx, nil, client.CreateAPIKey{Name: scope, Scope: client.CreateAPIKeyScope(scope)})
		require.NoError(t, err)
		require.Equal(t, 201, made.StatusCode(), string(made.Body))
		requireShape(t, `{"id":"string","key":"string","prefix":"string","scope":"string","created_at":"time"}`, made.Body)
		require.Equal(t, prefix, made.JSON201.Prefix)
		require.Regexp(t, "^"+prefix+"[A-Za-z0-9]{32}$", made.JSON201.Key)
		secrets[made.JSON201.Id] = made.JSON201.Key
	}
	list, err := o.ListApiKeysWithResponse(ctx, nil)
	require.NoError(t, err)
	requireShape(t, `{"data":[{"id":"string","prefix":"string","scope":"string"}],"has_more":"boolean","next_page_token":"string?"}`, list.Body)
	for id, secret := range secrets {
		require.Contains(t, string(list.Body), id)
		require.NotContains(t, string(list.Body), secret[len(secret)-32:])
	}
	for id, secret := range secrets {
		if strings.HasPrefix(secret, "svc_ink_") {
			continue
		}
		status := func(key string) int {
			code, _ := callUntilAnswered(t, "GET", r.replicas[1]+"/v1/meters", key, "")
			return code
		}
		require.Equal(t, 200, status(secret))
		rotated, err := o.RotateApiKeyWithResponse(ctx, id, nil, client.RotateApiKeyJSONRequestBody{})
		require.NoError(t, err)
		require.Equal(t, 201, rotated.StatusCode(), string(rotated.Body))
		require.Equal(t, 401, status(secret))
		require.Equal(t, 200, status(rotated.JSON201.Key))
		revoked, err := o.RevokeApiKeyWithResponse(ctx, rotated.JSON201.Id)
		require.NoError(t, err)
		require.Equal(t, 200, revoked.StatusCode(), string(revoked.Body))
		require.Equal(t, 401, status(rotated.JSON201.Key))
	}
}
