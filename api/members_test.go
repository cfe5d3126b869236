package api_test

import (
	"encoding/json"
	"fmt"
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

// roleMatrix is the other half of matrix: permission → roles.
var roleMatrix = map[string]string{
	"events:write":    "owner admin developer",
	"events:read":     "owner admin developer billing",
	"usage:read":      "owner admin developer billing viewer",
	"customers:read":  "owner admin developer billing viewer",
	"customers:write": "owner admin developer",
	"meters:read":     "owner admin developer billing viewer",
	"meters:write":    "owner admin developer",
	"pricing:read":    "owner admin developer billing",
	"pricing:write":   "owner admin billing",
	"billing:read":    "owner admin billing",
	"billing:write":   "owner admin billing",
	"webhooks:read":   "owner admin developer billing",
	"webhooks:write":  "owner admin developer",
	"api_keys:manage": "owner admin",
	"tenant:manage":   "owner",
	"session:own":     "owner admin developer billing viewer",
}

var roles = []metering.Role{
	metering.RoleOwner, metering.RoleAdmin, metering.RoleDeveloper, metering.RoleBilling, metering.RoleViewer,
}

func TestEveryOperationLetsInTheRolesThatTheTableSays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	calls := b.calls(t)
	for _, role := range roles {
		token := b.logIn(t, b.member(t, b.tenant.ID, email(string(role)), role).Email).Token
		for _, c := range calls {
			if strings.HasPrefix(c.id, "log-out") {
				continue // they would end the session
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

func (b *bundle) createMember(t *testing.T, body string, headers ...string) client.Member {
	t.Helper()
	a := b.send(t, "POST", "/v1/tenant/members", body, headers...)
	require.Equal(t, 201, a.status, a.body)
	var m client.Member
	require.NoError(t, json.Unmarshal([]byte(a.body), &m))
	return m
}

func TestMembersAreMadeChangedListedAndRemoved(t *testing.T) {
	t.Parallel()
	b, theirs := setup(t), setup(t)
	address := email("ada")
	ada := b.createMember(t, fmt.Sprintf(`{"email":%q,"name":"Ada","role":"viewer","password":%q}`, address, password))
	require.True(t, ada.HasPassword)
	require.Equal(t, ada.Id, b.logIn(t, address).Member.Id)
	bob := b.createMember(t, fmt.Sprintf(`{"email":%q,"role":"admin"}`, email("bob")))
	require.False(t, bob.HasPassword)
	theirs.createMember(t, fmt.Sprintf(`{"email":%q,"role":"admin"}`, address))

	p := b.send(t, "POST", "/v1/tenant/members", fmt.Sprintf(`{"email":%q,"role":"admin"}`, strings.ToUpper(address))).problem(t, 409, "conflict")
	require.NotContains(t, strings.ToLower(p.Detail), "ada")
	for _, bad := range []string{
		`{"email":"ada","role":"viewer"}`, `{"email":"a@b","role":"god"}`, `{"email":"a@b","role":"viewer","password":"elevenchars"}`,
		`{"email":"a b@c","role":"viewer"}`, `{"email":"a@b@c","role":"viewer"}`, `{"role":"viewer"}`, `{"email":"a@b"}`,
	} {
		b.send(t, "POST", "/v1/tenant/members", bad).problem(t, 422, "invalid")
	}

	changed := b.send(t, "PATCH", "/v1/tenant/members/"+ada.Id, `{"name":"Ada L.","role":"developer"}`)
	require.Equal(t, 200, changed.status, changed.body)
	first := b.send(t, "GET", "/v1/tenant/members?page_size=1", "")
	require.Contains(t, first.body, `"name":"Ada L.","role":"developer"`)
	require.NotContains(t, first.body, bob.Id)
	require.NotContains(t, first.body, "argon2")
	var page client.ListMember
	require.NoError(t, json.Unmarshal([]byte(first.body), &page))
	second := b.send(t, "GET", "/v1/tenant/members?page_size=1&page_token="+*page.NextPageToken, "")
	require.Contains(t, second.body, bob.Id)

	for _, request := range [][2]string{{"PATCH", ""}, {"DELETE", ""}, {"POST", "/make-owner"}} {
		theirs.send(t, request[0], "/v1/tenant/members/"+ada.Id+request[1], "{}").problem(t, 404, "not_found")
		b.send(t, request[0], "/v1/tenant/members/member_0"+request[1], "{}").problem(t, 404, "not_found")
	}
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/members/"+ada.Id, "").status)
	b.send(t, "DELETE", "/v1/tenant/members/"+ada.Id, "").problem(t, 404, "not_found")
	require.NotContains(t, b.send(t, "GET", "/v1/tenant/members", "").body, ada.Id)
}

func TestTheOwnerLeavesOnlyByHandingOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ownersEmail := email("owner")
	owner := b.createMember(t, fmt.Sprintf(`{"email":%q,"role":"owner","password":%q}`, ownersEmail, password))
	heir := b.createMember(t, fmt.Sprintf(`{"email":%q,"role":"viewer"}`, email("heir")))
	as := bearer(b.logIn(t, ownersEmail).Token)

	b.send(t, "POST", "/v1/tenant/members", fmt.Sprintf(`{"email":%q,"role":"owner"}`, email("second"))).problem(t, 409, "conflict")
	b.send(t, "DELETE", "/v1/tenant/members/"+owner.Id, "", as).problem(t, 409, "conflict")
	b.send(t, "PATCH", "/v1/tenant/members/"+owner.Id, `{"role":"admin"}`, as).problem(t, 409, "conflict")
	b.send(t, "PATCH", "/v1/tenant/members/"+heir.Id, `{"role":"owner"}`, as).problem(t, 422, "invalid")

	made := b.send(t, "POST", "/v1/tenant/members/"+heir.Id+"/make-owner", "", as)
	require.Equal(t, 200, made.status, made.body)
	require.Contains(t, made.body, `"role":"owner"`)
	b.send(t, "GET", "/v1/tenant/members", "", as).problem(t, 403, "forbidden")
	require.Contains(t, b.send(t, "GET", "/v1/auth/session", "", as).body, `"role":"admin"`)
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/members/"+owner.Id, "").status)
}

func TestAnAdminWhoIsNoOwnerMakesNoKeyOfTheOwners(t *testing.T) {
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

func TestWhatAMemberDoesIsAuditedUnderTheirName(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleOwner)
	as := bearer(b.logIn(t, ada.Email).Token)
	require.Equal(t, http.StatusCreated, b.send(t, "POST", "/v1/customers", `{"external_id":"acme"}`, as).status)
	bob := b.createMember(t, fmt.Sprintf(`{"email":%q,"role":"viewer"}`, email("bob")), as)
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/members/"+bob.Id, "", as).status)
	require.Equal(t, 200, b.send(t, "POST", "/v1/auth/logout-all", "", as).status)
	rows, err := dbtest.Conn(t).Query(t.Context(), `select action from audit_log where tenant_id = $1 and actor = $2 order by id`, b.tenant.ID, ada.ID.String())
	require.NoError(t, err)
	actions, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Equal(t, []string{"session.begin", "customer.create", "member.create", "member.remove", "session.end_all"}, actions)
}
