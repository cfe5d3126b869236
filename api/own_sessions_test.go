package api_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

func TestMembersEndOnlyTheirOwnSessions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada, bob := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer), b.member(t, b.tenant.ID, email("bob"), metering.RoleOwner)
	first, second, bobs := b.logIn(t, ada.Email), b.logIn(t, ada.Email), b.logIn(t, bob.Email)

	mine := b.sessions(t, second.Token)
	require.Len(t, mine, 2)
	require.True(t, mine[0].Current)
	require.False(t, mine[1].Current)
	require.Equal(t, 404, b.send(t, "DELETE", "/v1/auth/sessions/"+mine[1].Id.String(), "", bearer(bobs.Token)).status)
	b.send(t, "DELETE", "/v1/auth/sessions/x", "", bearer(bobs.Token)).problem(t, 404, "not_found")
	require.Equal(t, 200, b.whoAmI(t, first.Token))

	require.Equal(t, 200, b.send(t, "DELETE", "/v1/auth/sessions/"+mine[1].Id.String(), "", bearer(second.Token)).status)
	require.Equal(t, 401, b.whoAmI(t, first.Token))
	require.Len(t, b.sessions(t, second.Token), 1)
	b.send(t, "DELETE", "/v1/auth/sessions/"+mine[1].Id.String(), "", bearer(second.Token)).problem(t, 404, "not_found")
	b.send(t, "GET", "/v1/auth/sessions", "").problem(t, 403, "forbidden") // an API key has no sessions
}

// TestSignInEndsPreviousSessionOfBrowser checks that a sign-in ends the browser's previous session. The new
// cookie replaces the previous one, so the browser could no longer use or end the previous session.
func TestSignInEndsPreviousSessionOfBrowser(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.beside(t)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleOwner)
	b.member(t, other.tenant.ID, ada.Email, metering.RoleOwner)
	logIn := func(cookie, password, tenant string) answer {
		return b.send(t, "POST", "/v1/auth/login", logInBody(ada.Email, password, tenant), "Authorization: ", "Cookie: odometer_session="+cookie)
	}
	here, there := b.tenant.ID.String(), other.tenant.ID.String()
	elsewhere, former := logIn("", password, here).signedIn(t), logIn("", password, here).signedIn(t)

	logIn(former.Token, "wrong", there).problem(t, 401, "unauthorized")
	require.Len(t, logIn(former.Token, password, "").signedIn(t).Tenants, 2)
	require.Equal(t, 200, b.whoAmI(t, former.Token), "nothing has been chosen yet")

	chosen := logIn(former.Token, password, there).signedIn(t)
	require.Equal(t, 401, b.whoAmI(t, former.Token))
	left := b.sessions(t, elsewhere.Token)
	require.Len(t, left, 1)
	require.True(t, left[0].Current, "another browser's session lives on")
	require.Len(t, b.sessions(t, chosen.Token), 1)
	require.Equal(t, 1, strings.Count(b.send(t, "GET", "/v1/audit-log", "").body, `"action":"session.end"`))

	again := logIn(former.Token, password, there).signedIn(t)
	require.Equal(t, 200, b.whoAmI(t, chosen.Token), "what has ended is not ended again")
	accepted := b.send(t, "POST", "/v1/invitations/accept", `{"token":"`+b.invite(t, email("bob"), "viewer").Token+`","password":"`+password+`"}`,
		"Authorization: ", "Cookie: odometer_session="+again.Token).signedIn(t)
	require.Equal(t, 401, b.whoAmI(t, again.Token))
	require.Equal(t, 200, b.whoAmI(t, accepted.Token))
}

// sessions returns the sessions of the member with this token.
func (b *bundle) sessions(t testing.TB, token string) []client.OwnSession {
	t.Helper()
	a := b.send(t, "GET", "/v1/auth/sessions", "", bearer(token))
	require.Equal(t, 200, a.status, a.body)
	var list client.ListOwnSession
	require.NoError(t, json.Unmarshal([]byte(a.body), &list))
	return list.Data
}
