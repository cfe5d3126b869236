package api_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/metering"
)

// credentialMade is an API key or an HMAC secret in a response.
type credentialMade struct {
	ID, Key, Secret string
	CreatedBy       string  `json:"created_by"`
	HandedTo        *string `json:"handed_to"`
	RevokedAt       *string `json:"revoked_at"`
}

// makeCredential creates a credential in the list at the path. The header as authenticates the request.
func (b *bundle) makeCredential(t *testing.T, path, as string) (made credentialMade) {
	t.Helper()
	a := b.send(t, "POST", path, `{"name":"made","scope":"read_write"}`, as)
	require.Equal(t, 201, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &made))
	return made
}

// credentials returns the tenant's API keys and HMAC secrets, by id.
func (b *bundle) credentials(t *testing.T) map[string]credentialMade {
	t.Helper()
	all := map[string]credentialMade{}
	for _, path := range []string{"/v1/api-keys", "/v1/hmac-secrets"} {
		var list struct{ Data []credentialMade }
		require.NoError(t, json.Unmarshal([]byte(b.send(t, "GET", path, "").body), &list))
		for _, c := range list.Data {
			all[c.ID] = c
		}
	}
	return all
}

// maker returns a member that has created an API key and an HMAC secret. The removal of the member must revoke
// them or hand them over.
func (b *bundle) maker(t *testing.T) (m metering.Member, made []credentialMade) {
	t.Helper()
	m = b.member(t, b.tenant.ID, email("maker"), metering.RoleAdmin)
	as := bearer(b.logIn(t, m.Email).Token)
	made = append(made, b.makeCredential(t, "/v1/api-keys", as), b.makeCredential(t, "/v1/hmac-secrets", as))
	for _, c := range made {
		require.Equal(t, m.ID.String(), c.CreatedBy)
	}
	return m, made
}

func TestRemovingMemberRequiresChoiceForTheirCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t)
	m, made := b.maker(t)
	path := "/v1/tenant/members/" + m.ID.String()
	p := b.send(t, "DELETE", path, "").problem(t, 409, "conflict")
	for _, c := range made {
		require.Contains(t, p.Detail, c.ID)
	}
	b.send(t, "DELETE", path+"?keys=keep", "").problem(t, 422, "invalid")
	require.Contains(t, b.send(t, "GET", "/v1/tenant/members", "").body, m.ID.String())

	require.Equal(t, 200, b.send(t, "DELETE", path+"?keys=revoke", "").status)
	b.send(t, "GET", "/v1/customers", "", bearer(made[0].Key)).problem(t, 401, "unauthorized")
	all := b.credentials(t)
	for _, c := range made {
		require.NotNil(t, all[c.ID].RevokedAt)
		require.Equal(t, m.ID.String(), all[c.ID].CreatedBy, "who made it stays known")
	}
}

func TestCredentialIsHandedOverToMemberThatRemovesCreator(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner := b.member(t, b.tenant.ID, email("owner"), metering.RoleOwner)
	heir := b.member(t, b.tenant.ID, email("heir"), metering.RoleAdmin)
	as := bearer(b.logIn(t, owner.Email).Token)
	m, made := b.maker(t)
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/members/"+m.ID.String()+"?keys=hand_over", "", as).status)
	require.Equal(t, 200, b.send(t, "GET", "/v1/customers", "", bearer(made[0].Key)).status)
	for _, c := range made {
		shown := b.credentials(t)[c.ID]
		require.Equal(t, m.ID.String(), shown.CreatedBy)
		require.Equal(t, owner.ID.String(), *shown.HandedTo)
		require.Nil(t, shown.RevokedAt)
	}
	require.Equal(t, 200, b.send(t, "POST", "/v1/tenant/members/"+heir.ID.String()+"/make-owner", "", as).status)
	p := b.send(t, "DELETE", "/v1/tenant/members/"+owner.ID.String(), "").problem(t, 409, "conflict")
	require.Contains(t, p.Detail, made[0].ID, "whom they were handed to answers for them now")
}

func TestCredentialCreatedByMembersKeyBelongsToMember(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner := b.member(t, b.tenant.ID, email("owner"), metering.RoleOwner)
	heir := b.member(t, b.tenant.ID, email("heir"), metering.RoleAdmin)
	as := bearer(b.logIn(t, owner.Email).Token)
	a := b.send(t, "POST", "/v1/api-keys", `{"name":"admin","scope":"admin"}`, as)
	var first credentialMade
	require.NoError(t, json.Unmarshal([]byte(a.body), &first))
	second := b.makeCredential(t, "/v1/api-keys", bearer(first.Key))
	require.Equal(t, first.ID, second.CreatedBy)
	require.Equal(t, 200, b.send(t, "POST", "/v1/api-keys/"+first.ID+"/revoke", "").status)
	require.Equal(t, 200, b.send(t, "POST", "/v1/tenant/members/"+heir.ID.String()+"/make-owner", "", as).status)

	path := "/v1/tenant/members/" + owner.ID.String()
	p := b.send(t, "DELETE", path, "").problem(t, 409, "conflict")
	require.Contains(t, p.Detail, second.ID)
	require.NotContains(t, p.Detail, first.ID+",", "it is revoked")
	p = b.send(t, "DELETE", path+"?keys=hand_over", "", bearer(second.Key)).problem(t, 403, "forbidden")
	require.Contains(t, p.Detail, "tenant:manage")
	require.Equal(t, 200, b.send(t, "DELETE", path+"?keys=revoke", "").status)
	b.send(t, "GET", "/v1/customers", "", bearer(second.Key)).problem(t, 401, "unauthorized")
}

// TestCredentialsCreatedByOtherKeysAreHandedOver hands over a chain of three keys. The second key is revoked, and
// stays unchanged.
func TestCredentialsCreatedByOtherKeysAreHandedOver(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner := b.member(t, b.tenant.ID, email("owner"), metering.RoleOwner)
	heir := b.member(t, b.tenant.ID, email("heir"), metering.RoleAdmin)
	adminKey := func(as string) (made credentialMade) {
		t.Helper()
		a := b.send(t, "POST", "/v1/api-keys", `{"name":"admin","scope":"admin"}`, as)
		require.Equal(t, 201, a.status, a.body)
		require.NoError(t, json.Unmarshal([]byte(a.body), &made))
		return made
	}
	as := bearer(b.logIn(t, owner.Email).Token)
	first := adminKey(as)
	second := adminKey(bearer(first.Key))
	third := b.makeCredential(t, "/v1/hmac-secrets", bearer(second.Key))
	require.Equal(t, 200, b.send(t, "POST", "/v1/api-keys/"+second.ID+"/revoke", "").status)
	require.Equal(t, 200, b.send(t, "POST", "/v1/tenant/members/"+heir.ID.String()+"/make-owner", "", as).status)
	byHeir := bearer(b.logIn(t, heir.Email).Token)
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/members/"+owner.ID.String()+"?keys=hand_over", "", byHeir).status)

	all := b.credentials(t)
	require.Equal(t, new(heir.ID.String()), all[first.ID].HandedTo)
	require.Nil(t, all[second.ID].HandedTo)
	require.Equal(t, new(heir.ID.String()), all[third.ID].HandedTo)
	require.Equal(t, second.ID, all[third.ID].CreatedBy)

	var log struct {
		Data []struct {
			Resource      string
			Before, After json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal([]byte(b.send(t, "GET", "/v1/audit-log?action=credential.hand_over", "").body), &log))
	changed := []string{}
	for _, e := range log.Data {
		changed = append(changed, e.Resource)
		require.JSONEq(t, `{"handed_to":null}`, string(e.Before))
		require.JSONEq(t, `{"handed_to":"`+heir.ID.String()+`"}`, string(e.After))
	}
	require.ElementsMatch(t, []string{first.ID, third.ID}, changed)
}

func TestACredentialIsNotHandedOverToItself(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner := b.member(t, b.tenant.ID, email("owner"), metering.RoleOwner)
	heir := b.member(t, b.tenant.ID, email("heir"), metering.RoleAdmin)
	a := b.send(t, "POST", "/v1/api-keys", `{"name":"admin","scope":"admin"}`, bearer(b.logIn(t, owner.Email).Token))
	var key credentialMade
	require.NoError(t, json.Unmarshal([]byte(a.body), &key))
	require.Equal(t, 200, b.send(t, "POST", fmt.Sprintf("/v1/tenant/members/%s/make-owner", heir.ID), "").status)
	b.send(t, "DELETE", "/v1/tenant/members/"+owner.ID.String()+"?keys=hand_over", "", bearer(key.Key)).problem(t, 409, "conflict")
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/members/"+owner.ID.String()+"?keys=hand_over", "").status)
	require.Equal(t, 200, b.send(t, "GET", "/v1/customers", "", bearer(key.Key)).status)
}
