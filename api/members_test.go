package api_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

// roleMatrix maps each permission to the roles that have it, as matrix does for scopes.
var roleMatrix = map[string]string{
	"events:write":    "owner admin developer",
	"events:read":     "owner admin developer billing",
	"usage:read":      "owner admin developer billing viewer",
	"customers:read":  "owner admin developer billing viewer",
	"customers:write": "owner admin developer",
	"customers:erase": "owner admin",
	"meters:read":     "owner admin developer billing viewer",
	"meters:write":    "owner admin developer",
	"pricing:read":    "owner admin developer billing",
	"pricing:write":   "owner admin billing",
	"quotas:read":     "owner admin developer billing",
	"quotas:write":    "owner admin",
	"billing:read":    "owner admin billing",
	"billing:write":   "owner admin billing",
	"webhooks:read":   "owner admin developer billing",
	"webhooks:write":  "owner admin developer",
	"alerts:read":     "owner admin developer billing",
	"alerts:write":    "owner admin developer",
	"api_keys:manage": "owner admin",
	"tenant:manage":   "owner",
	"session:own":     "owner admin developer billing viewer",
}

var roles = []metering.Role{
	metering.RoleOwner, metering.RoleAdmin, metering.RoleDeveloper, metering.RoleBilling, metering.RoleViewer,
}

func TestEveryOperationAllowsRolesOfPermissionTable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	calls := b.calls(t)
	for _, role := range roles {
		token := b.logIn(t, b.member(t, b.tenant.ID, email(string(role)), role).Email).Token
		for _, c := range calls {
			if strings.HasPrefix(c.id, "log-out") {
				continue // these operations would end the session
			}
			who := c.id + " as " + string(role)
			status := b.make(t, c, credential{headers: func(string) []string { return []string{bearer(token)} }})
			allowed, known := roleMatrix[c.permission]
			require.True(t, known, "%s asks for %q, which the table does not have", c.id, c.permission)
			if slices.Contains(strings.Fields(allowed), string(role)) {
				require.NotContains(t, []int{401, 403, 429}, status, who)
				require.Less(t, status, 500, who)
			} else {
				require.Equal(t, 403, status, who)
			}
		}
	}
}

func TestMembersAreChangedListedAndRemoved(t *testing.T) {
	t.Parallel()
	b, theirs := setup(t), setup(t)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer)
	bob, err := b.store.Members.Create(t.Context(), b.tenant.ID, metering.Operator, metering.Member{Email: email("bob"), Role: metering.RoleAdmin}, nil)
	require.NoError(t, err)
	path := "/v1/tenant/members/" + ada.ID.String()

	changed := b.send(t, "PATCH", path, `{"name":"Ada L.","role":"developer"}`)
	require.Equal(t, 200, changed.status, changed.body)
	first := b.send(t, "GET", "/v1/tenant/members?page_size=1", "")
	require.Contains(t, first.body, `"name":"Ada L.","role":"developer","has_password":true`)
	require.NotContains(t, first.body, bob.ID.String())
	var page client.ListMember
	require.NoError(t, json.Unmarshal([]byte(first.body), &page))
	second := b.send(t, "GET", "/v1/tenant/members?page_size=1&page_token="+*page.NextPageToken, "")
	require.Contains(t, second.body, bob.ID.String())
	require.Contains(t, second.body, `"has_password":false`)

	for _, request := range [][2]string{{"PATCH", ""}, {"DELETE", ""}, {"POST", "/make-owner"}, {"POST", "/reset"}} {
		theirs.send(t, request[0], path+request[1], "{}").problem(t, 404, "not_found")
		b.send(t, request[0], "/v1/tenant/members/member_0"+request[1], "{}").problem(t, 404, "not_found")
	}
	require.Equal(t, 200, b.send(t, "DELETE", path, "").status)
	b.send(t, "DELETE", path, "").problem(t, 404, "not_found")
	require.NotContains(t, b.send(t, "GET", "/v1/tenant/members", "").body, ada.ID.String())
}

func TestOwnerCanLeaveOnlyAfterTransferringOwnership(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner, heir := b.member(t, b.tenant.ID, email("owner"), metering.RoleOwner), b.member(t, b.tenant.ID, email("heir"), metering.RoleViewer)
	as := bearer(b.logIn(t, owner.Email).Token)

	b.send(t, "DELETE", "/v1/tenant/members/"+owner.ID.String(), "", as).problem(t, 409, "conflict")
	b.send(t, "PATCH", "/v1/tenant/members/"+owner.ID.String(), `{"role":"admin"}`, as).problem(t, 409, "conflict")
	b.send(t, "PATCH", "/v1/tenant/members/"+heir.ID.String(), `{"role":"owner"}`, as).problem(t, 422, "invalid")

	made := b.send(t, "POST", "/v1/tenant/members/"+heir.ID.String()+"/make-owner", "", as)
	require.Equal(t, 200, made.status, made.body)
	require.Contains(t, made.body, `"role":"owner"`)
	b.send(t, "GET", "/v1/tenant/members", "", as).problem(t, 403, "forbidden")
	require.Contains(t, b.send(t, "GET", "/v1/auth/session", "", as).body, `"role":"admin"`)
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/members/"+owner.ID.String(), "").status)
}

func TestAdminMemberCannotCreateAdminCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleAdmin)
	as := bearer(b.logIn(t, ada.Email).Token)
	for _, path := range []string{"/v1/api-keys", "/v1/hmac-secrets"} {
		b.send(t, "POST", path, `{"name":"x","scope":"admin"}`, as).problem(t, 403, "forbidden")
		require.Equal(t, 201, b.send(t, "POST", path, `{"name":"x","scope":"read_write"}`, as).status)
	}
	bob := b.member(t, b.tenant.ID, email("bob"), metering.RoleOwner)
	require.Equal(t, 201, b.send(t, "POST", "/v1/api-keys", `{"name":"x","scope":"admin"}`, bearer(b.logIn(t, bob.Email).Token)).status)
}

func TestMembersActionsAreAuditedWithMemberAsActor(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleOwner)
	as := bearer(b.logIn(t, ada.Email).Token)
	require.Equal(t, http.StatusCreated, b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`, as).status)
	invited := b.invite(t, email("bob"), "viewer", as)
	bob := b.accept(t, invited.Token, password).signedIn(t)
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/members/"+bob.Member.Id, "", as).status)
	require.Equal(t, 200, b.send(t, "POST", "/v1/auth/logout-all", "", as).status)
	rows, err := dbtest.Conn(t).Query(t.Context(), `select action from audit_log where tenant_id = $1 and actor = $2 order by id`, b.tenant.ID, ada.ID.String())
	require.NoError(t, err)
	actions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"session.begin", "customer.create", "member.invite", "member.remove", "session.end_all"}, actions)
}
