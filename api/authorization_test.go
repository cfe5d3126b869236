package api_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// matrix maps each permission to the scopes that have it, independently of the code.
var matrix = map[string]string{
	"events:write":    "admin read_write ingest_only",
	"events:read":     "admin read_write",
	"usage:read":      "admin read_write read_only",
	"customers:read":  "admin read_write read_only",
	"customers:write": "admin read_write",
	"customers:erase": "admin",
	"meters:read":     "admin read_write read_only",
	"meters:write":    "admin read_write",
	"pricing:read":    "admin",
	"pricing:write":   "admin",
	"quotas:read":     "admin read_write",
	"quotas:write":    "admin read_write",
	"billing:read":    "admin",
	"billing:write":   "admin",
	"webhooks:read":   "admin",
	"webhooks:write":  "admin",
	"alerts:read":     "admin",
	"alerts:write":    "admin",
	"api_keys:manage": "admin",
	"tenant:manage":   "admin",
	"session:own":     "admin read_write read_only ingest_only",
}

var scopes = []metering.Scope{metering.ScopeAdmin, metering.ScopeReadWrite, metering.ScopeReadOnly, metering.ScopeIngestOnly}

// call is a request that reaches the handler of an operation.
type call struct {
	id, method, path, body, permission string
	ours                               bool // the path or the query names a resource of the tenant
	session                            bool // about a session or password, which API keys and HMAC secrets lack
}

// calls returns one call for each operation of the document that requires credentials.
func (b *bundle) calls(t *testing.T) []call {
	t.Helper()
	text, _, err := documents()
	require.NoError(t, err)
	var document struct {
		Paths map[string]map[string]struct {
			ID         string `json:"operationId"`
			Permission string `json:"x-permission"`
			Parameters []struct {
				Name, In string
				Required bool
			} `json:"parameters"`
		} `json:"paths"`
	}
	require.NoError(t, json.Unmarshal(text, &document))
	names := b.namesOfOurs(t)
	var all []call
	for path, item := range document.Paths {
		for method, op := range item {
			if op.Permission == "public" {
				continue
			}
			c := call{id: op.ID, method: strings.ToUpper(method), path: names.Replace(path), permission: op.Permission}
			c.session = op.Permission == "session:own" && op.ID != "get-session"
			c.ours = strings.Contains(path, "{") && op.ID != "upsert-customer" // creates the customer if it does not exist
			query := "?"
			for _, p := range op.Parameters {
				if p.In == "query" && p.Required {
					query += p.Name + "=" + goodValue(p.Name) + "&"
					c.ours = c.ours || p.Name != "month"
				}
			}
			c.path += strings.TrimRight(query, "?&")
			if c.method != http.MethodGet {
				c.body = "{}"
			}
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b call) int { return strings.Compare(a.id, b.id) })
	return all
}

// namesOfOurs creates resources of the tenant, and returns a replacer that sets the path parameters to their names.
func (b *bundle) namesOfOurs(t *testing.T) *strings.Replacer {
	t.Helper()
	b.meter(t, "calls", "call")
	b.ingest(t, "/v1/events", hello)
	spare := b.newSigner(t, metering.ScopeReadOnly)
	spare.revoke(t, b) // revoked, it does not count towards the maximum of valid secrets
	key := b.send(t, "POST", "/v1/api-keys", `{"name":"spare","scope":"read_only"}`)
	var made struct {
		ID string `json:"id"`
	}
	require.NoError(t, json.Unmarshal([]byte(key.body), &made))
	return strings.NewReplacer(
		"{slug}", "calls", "{external_id}", "acme", "{period}", "per_1", "{version}", "1", "{meter}", "calls", "/api-keys/{id}", "/api-keys/"+made.ID, "/hmac-secrets/{id}", "/hmac-secrets/"+spare.id,
		"{id}", "0192b1a0-0000-7000-8000-000000000000",
	)
}

// credential authenticates calls: headers returns the headers for a body, and id locates the stored credential.
type credential struct {
	headers func(body string) []string
	id      string
}

// keyOf stores a new API key of a tenant, with this scope.
func (b *bundle) keyOf(t *testing.T, tenant metering.TenantID, scope metering.Scope) credential {
	t.Helper()
	key, record := b.keys.Make(scope)
	record.Name = "matrix"
	record, err := b.store.Credentials.Create(t.Context(), tenant, metering.Operator, metering.APIKeyCredential, record, b.now())
	require.NoError(t, err)
	return credential{func(string) []string { return []string{"Authorization: Bearer " + key} }, record.ID.String()}
}

// secretOf creates an HMAC secret with this scope.
func (b *bundle) secretOf(t *testing.T, scope metering.Scope) credential {
	t.Helper()
	s := b.newSigner(t, scope)
	return credential{s.sign, s.id}
}

// becomes applies an SQL assignment to the stored credential.
func (c credential) becomes(t *testing.T, change string) {
	t.Helper()
	_, number, _ := strings.Cut(c.id, "_")
	_, err := dbtest.Conn(t).Exec(context.Background(), fmt.Sprintf(`update credentials set %s where id = %s`, change, number))
	require.NoError(t, err)
}

// make makes the call with a credential, and returns the status of the response.
func (b *bundle) make(t *testing.T, c call, as credential) int {
	t.Helper()
	body := c.body
	if c.method == http.MethodGet {
		body = ""
	}
	return b.send(t, c.method, c.path, body, as.headers(body)...).status
}

// TestEveryOperationAllowsScopesOfPermissionTable calls every operation with an API key and an HMAC secret of each
// scope. It repeats the calls after the credential has expired, and after it is revoked.
func TestEveryOperationAllowsScopesOfPermissionTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	calls := b.calls(t)
	require.Greater(t, len(calls), 25)
	for _, scope := range scopes {
		for kind, as := range map[string]credential{"key": b.keyOf(t, b.tenant.ID, scope), "HMAC secret": b.secretOf(t, scope)} {
			for _, c := range calls {
				who := fmt.Sprintf("%s as %s %s", c.id, scope, kind)
				allowed, known := matrix[c.permission]
				require.True(t, known, "%s asks for %q, which the table does not have", c.id, c.permission)
				status := b.make(t, c, as)
				switch {
				case c.session:
					require.Contains(t, []int{403, 422}, status, who) // 422: the body is validated first
				case slices.Contains(strings.Fields(allowed), string(scope)):
					require.NotContains(t, []int{401, 403, 429}, status, who)
					require.Less(t, status, 500, who)
				default:
					require.Equal(t, 403, status, who)
				}
			}
			as.becomes(t, "expires_at = now() - interval '1 day'")
			for _, c := range calls {
				require.Equal(t, 401, b.make(t, c, as), "%s with an expired %s %s", c.id, scope, kind)
			}
			as.becomes(t, "expires_at = null, revoked_at = now()")
			for _, c := range calls {
				require.Equal(t, 401, b.make(t, c, as), "%s with a revoked %s %s", c.id, scope, kind)
			}
		}
	}
}

func TestOperationsWithoutCredentialsReturn401(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, c := range b.calls(t) {
		b.send(t, c.method, c.path, c.body, "Authorization: ").problem(t, 401, "unauthorized")
	}
}

// TestAdminOfAnotherTenantFindsNoResources checks that calls for resources of this tenant return 404 to an admin of
// another tenant. A call with a body that is validated first may return 422.
func TestAdminOfAnotherTenantFindsNoResources(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := dbtest.Tenant(t, b.store)
	as := b.keyOf(t, other.ID, metering.ScopeAdmin)
	for _, c := range b.calls(t) {
		if c.session {
			continue
		}
		a := b.send(t, c.method, c.path, c.body, as.headers(c.body)...)
		require.NotContains(t, []int{401, 403}, a.status, c.id)
		require.NotContains(t, a.body, b.tenant.ID.String()+`"`, c.id)
		if c.ours && a.status != 404 {
			require.Equal(t, 422, a.status, "%s: %s", c.id, a.body)
			require.NotEqual(t, http.MethodGet, c.method, c.id)
		}
	}
}

// TestOnlyAdminCredentialsCreateCredentials checks that only admin credentials can create API keys and HMAC
// secrets.
func TestOnlyAdminCredentialsCreateCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, scope := range scopes {
		for _, as := range []credential{b.keyOf(t, b.tenant.ID, scope), b.secretOf(t, scope)} {
			for _, wanted := range scopes {
				for _, path := range []string{"/v1/api-keys", "/v1/hmac-secrets"} {
					body := fmt.Sprintf(`{"name":"made","scope":%q}`, wanted)
					status := b.send(t, "POST", path, body, as.headers(body)...).status
					if scope == metering.ScopeAdmin {
						require.Contains(t, []int{201, 409}, status)
					} else {
						require.Equal(t, 403, status)
					}
				}
			}
		}
		_, err := dbtest.Conn(t).Exec(t.Context(), `update credentials set revoked_at = now() where tenant_id = $1 and kind = 'hmac_secret'`, b.tenant.ID)
		require.NoError(t, err)
	}
}
