package api_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/metering"
)

func TestMembersEndTheirOwnSessionsAndNobodyElses(t *testing.T) {
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
	b.send(t, "GET", "/v1/auth/sessions", "").problem(t, 403, "forbidden") // a key has none
}

func (b *bundle) sessions(t testing.TB, token string) []client.OwnSession {
	t.Helper()
	a := b.send(t, "GET", "/v1/auth/sessions", "", bearer(token))
	require.Equal(t, 200, a.status, a.body)
	var list client.ListOwnSession
	require.NoError(t, json.Unmarshal([]byte(a.body), &list))
	return list.Data
}
