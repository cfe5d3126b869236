package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

const anotherPassword = "quite another staple of horses"

// invitation returns the created invitation with its token.
func (a answer) invitation(t testing.TB) (made client.CreatedInvitation) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(a.body), &made), a.body)
	require.NotEmpty(t, made.Token, a.body)
	return made
}

// invite invites an email address as a member with this role.
func (b *bundle) invite(t testing.TB, email, role string, headers ...string) client.CreatedInvitation {
	t.Helper()
	a := b.send(t, "POST", "/v1/tenant/members", fmt.Sprintf(`{"email":%q,"role":%q}`, email, role), headers...)
	require.Equal(t, 201, a.status, a.body)
	return a.invitation(t)
}

// accept accepts an invitation with a password.
func (b *bundle) accept(t testing.TB, token, password string) answer {
	t.Helper()
	body, err := json.Marshal(map[string]string{"token": token, "password": password})
	require.NoError(t, err)
	return b.send(t, "POST", "/v1/invitations/accept", string(body), "Authorization: ")
}

// tryLogIn returns the response to a login.
func (b *bundle) tryLogIn(t testing.TB, email, password, tenant string) answer {
	t.Helper()
	return b.send(t, "POST", "/v1/auth/login", logInBody(email, password, tenant), "Authorization: ")
}

// beside returns a bundle of another tenant of the same installation.
func (b *bundle) beside(t testing.TB) *bundle {
	t.Helper()
	other := &bundle{store: b.store, writer: b.writer, keys: b.keys, tenant: dbtest.Tenant(t, b.store), temporal: b.temporal, clock: b.clock, deps: b.deps, url: b.url, contract: b.contract}
	other.key = other.newKey(t, metering.ScopeAdmin)
	return other
}

func TestInvitationsOfTenantAreLimitedPerMinute(t *testing.T) {
	t.Parallel()
	b := setup(t)
	member := b.member(t, b.tenant.ID, email("reset"), metering.RoleViewer)
	for n := range 18 {
		b.invite(t, email(fmt.Sprint("invited", n)), "viewer")
	}
	made := b.invite(t, email("renewed"), "viewer")
	require.Equal(t, 200, b.send(t, "POST", "/v1/tenant/invitations/"+made.Id+"/renew", "").status)
	for _, path := range []string{"/v1/tenant/invitations/" + made.Id + "/renew", "/v1/tenant/members/" + member.ID.String() + "/reset"} {
		refused := b.send(t, "POST", path, "")
		require.Contains(t, refused.problem(t, 429, "rate_limited").Detail, "20 times a minute", path)
		require.NotEmpty(t, refused.header.Get("Retry-After"), path)
	}
	require.Equal(t, 429, b.send(t, "POST", "/v1/tenant/members", fmt.Sprintf(`{"email":%q,"role":"viewer"}`, email("late"))).status)
	b.beside(t).invite(t, email("beside"), "viewer")
	b.ahead.Store(int64(time.Minute + time.Second))
	require.Equal(t, 200, b.send(t, "POST", "/v1/tenant/members/"+member.ID.String()+"/reset", "").status)
}

func TestAcceptedInvitationCreatesMember(t *testing.T) {
	t.Parallel()
	b := setup(t)
	address := email("Ada")
	asked := b.now()
	invited := b.invite(t, address, "billing")
	require.Len(t, invited.Token, 32)
	const week = 7 * 24 * time.Hour
	require.WithinRange(t, invited.ExpiresAt, asked.Add(week), b.now().Add(week))
	require.NotContains(t, b.send(t, "GET", "/v1/tenant/members", "").body, address, "who is invited is no member yet")
	pending := b.send(t, "GET", "/v1/tenant/invitations", "").body
	require.Contains(t, pending, address)
	require.NotContains(t, pending, invited.Token)
	b.tryLogIn(t, address, password, "").problem(t, 401, "unauthorized")

	in := b.accept(t, invited.Token, password).signedIn(t)
	require.Equal(t, "billing", string(in.Member.Role))
	require.Equal(t, 200, b.whoAmI(t, in.Token))
	require.Equal(t, in.Member.Id, b.logIn(t, strings.ToUpper(address)).Member.Id)
	require.NotContains(t, b.send(t, "GET", "/v1/tenant/invitations", "").body, address)
	b.accept(t, invited.Token, anotherPassword).problem(t, 404, "not_found")
	p := b.send(t, "POST", "/v1/tenant/members", fmt.Sprintf(`{"email":%q,"role":"admin"}`, strings.ToUpper(address))).problem(t, 409, "conflict")
	require.NotContains(t, strings.ToLower(p.Detail), "ada")
	for _, bad := range []string{
		`{"email":"ada","role":"viewer"}`, `{"email":"a@b","role":"god"}`, `{"email":"a@b","role":"viewer","password":"correct horse battery staple"}`,
		`{"email":"a b@c","role":"viewer"}`, `{"email":"a@b@c","role":"viewer"}`, `{"role":"viewer"}`, `{"email":"a@b"}`,
	} {
		b.send(t, "POST", "/v1/tenant/members", bad).problem(t, 422, "invalid")
	}
}

func TestInvitationRequiresTokenThatIsStoredOnlyAsHash(t *testing.T) {
	t.Parallel()
	b := setup(t)
	invited := b.invite(t, email("ada"), "viewer")
	var row string
	require.NoError(t, dbtest.Conn(t).QueryRow(t.Context(), `select i::text from invitations i where tenant_id = $1`, b.tenant.ID).Scan(&row))
	require.NotContains(t, row, invited.Token)
	for _, token := range []string{"", "x", strings.Repeat("x", 32), invited.Token[1:] + "x", "\x00"} {
		b.accept(t, token, password).problem(t, 404, "not_found")
	}
	for _, bad := range []string{"short", "123456789012", strings.Repeat("x", 257)} {
		b.accept(t, invited.Token, bad).problem(t, 422, "invalid")
	}
	require.Equal(t, 200, b.accept(t, invited.Token, password).status)
}

// found is the response that the page of an invitation's link shows.
type found struct {
	TenantName string `json:"tenant_name"`
	Email      string
	Name       string
	Role       string
	Reset      bool
	Issuer     *string
	ExpiresAt  time.Time `json:"expires_at"`
}

// find returns the response to a search for the invitation with this token.
func (b *bundle) find(t testing.TB, token string) answer {
	t.Helper()
	body, err := json.Marshal(map[string]string{"token": token})
	require.NoError(t, err)
	return b.send(t, "POST", "/v1/invitations/find", string(body), "Authorization: ")
}

func TestInvitationShowsTenantAndRoleBeforeAcceptance(t *testing.T) {
	t.Parallel()
	b := setup(t)
	address := email("Ada")
	invited := b.invite(t, address, "billing")
	require.Equal(t, b.url+"/invitation#"+invited.Token, invited.Url)
	find := func(token string) (f found) {
		a := b.find(t, token)
		require.Equal(t, 200, a.status, a.body)
		require.NotContains(t, a.body, b.tenant.ID.String())
		require.NoError(t, json.Unmarshal([]byte(a.body), &f))
		return f
	}
	require.Equal(t, found{TenantName: b.tenant.Name, Email: address, Role: "billing", ExpiresAt: invited.ExpiresAt}, find(invited.Token))
	require.Equal(t, 200, b.find(t, invited.Token).status, "looking uses nothing up")

	op := newIssuer(t)
	b.saveIssuer(t, op)
	in := b.accept(t, invited.Token, password).signedIn(t)
	reset := b.send(t, "POST", "/v1/tenant/members/"+in.Member.Id+"/reset", "").invitation(t)
	require.Equal(t, found{TenantName: b.tenant.Name, Email: address, Role: "billing", Reset: true, Issuer: new(op.Issuer()), ExpiresAt: reset.ExpiresAt}, find(reset.Token))

	renewed := b.send(t, "POST", "/v1/tenant/invitations/"+reset.Id+"/renew", "").invitation(t)
	require.Equal(t, b.url+"/invitation#"+renewed.Token, renewed.Url)
	over := b.find(t, invited.Token).problem(t, 404, "not_found")
	for _, token := range []string{"", "x", reset.Token, strings.Repeat("x", 32), renewed.Token[1:] + "x", "\x00"} {
		require.Equal(t, over.Detail, b.find(t, token).problem(t, 404, "not_found").Detail, "nobody learns that a token was one")
	}
	b.ahead.Store(int64(7*24*time.Hour + time.Minute))
	b.find(t, renewed.Token).problem(t, 404, "not_found")
}

func TestGuessedInvitationTokensCountAsSignInAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 30 {
		b.find(t, strings.Repeat("x", 32)).problem(t, 404, "not_found")
	}
	b.find(t, b.invite(t, email("ada"), "viewer").Token).problem(t, 429, "rate_limited")
}

func TestRevokedReplacedOrExpiredInvitationIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	theirs := b.beside(t)
	address := email("ada")
	revoked := b.invite(t, address, "viewer")
	path := "/v1/tenant/invitations/" + revoked.Id
	theirs.send(t, "DELETE", path, "").problem(t, 404, "not_found")
	theirs.send(t, "POST", path+"/renew", "").problem(t, 404, "not_found")
	require.NotContains(t, theirs.send(t, "GET", "/v1/tenant/invitations", "").body, revoked.Id)
	require.Equal(t, 200, b.send(t, "DELETE", path, "").status)
	b.send(t, "DELETE", path, "").problem(t, 404, "not_found")
	b.accept(t, revoked.Token, password).problem(t, 404, "not_found")

	replaced := b.invite(t, address, "viewer")
	renewed := b.send(t, "POST", "/v1/tenant/invitations/"+b.invite(t, strings.ToUpper(address), "admin").Id+"/renew", "").invitation(t)
	b.accept(t, replaced.Token, password).problem(t, 404, "not_found")
	b.ahead.Store(int64(7*24*time.Hour + time.Minute))
	b.accept(t, renewed.Token, password).problem(t, 404, "not_found")
	b.send(t, "POST", "/v1/tenant/invitations/"+renewed.Id+"/renew", "").problem(t, 404, "not_found")
	require.NotContains(t, b.send(t, "GET", "/v1/tenant/invitations", "").body, renewed.Id)
	require.Equal(t, 200, b.accept(t, b.invite(t, address, "admin").Token, password).status)
}

func TestInvitationByRemovedMemberIsRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	owner, heir := b.member(t, b.tenant.ID, email("owner"), metering.RoleOwner), b.member(t, b.tenant.ID, email("heir"), metering.RoleViewer)
	back := b.invite(t, email("second-address"), "admin", bearer(b.logIn(t, owner.Email).Token))
	require.Equal(t, 200, b.send(t, "POST", "/v1/tenant/members/"+heir.ID.String()+"/make-owner", "").status)
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/members/"+owner.ID.String(), "").status)
	b.accept(t, back.Token, password).problem(t, 404, "not_found")
}

func TestOnlyOneOwnerInvitationIsAccepted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.invite(t, email("first"), "owner"), b.invite(t, email("second"), "owner")
	require.Equal(t, 200, b.accept(t, first.Token, password).status)
	b.accept(t, second.Token, password).problem(t, 409, "conflict")
	b.send(t, "POST", "/v1/tenant/members", fmt.Sprintf(`{"email":%q,"role":"owner"}`, email("third"))).problem(t, 409, "conflict")
}

// TestInvitationDoesNotAffectMemberOfAnotherTenant simulates an attack: an admin of a tenant invites the e-mail of
// another tenant's member, and accepts the invitation. The responses do not reveal whether the e-mail is known, and the
// member's account stays unchanged.
func TestInvitationDoesNotAffectMemberOfAnotherTenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	attacker := b.beside(t)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleOwner)
	unknown := email("unknown")
	var shapes []string
	for _, address := range []string{ada.Email, unknown} {
		made := attacker.send(t, "POST", "/v1/tenant/members", fmt.Sprintf(`{"email":%q,"role":"admin"}`, address))
		accepted := attacker.accept(t, made.invitation(t).Token, anotherPassword)
		in := accepted.signedIn(t)
		require.Equal(t, attacker.tenant.ID.String(), in.Member.TenantId)
		require.Equal(t, 200, attacker.send(t, "DELETE", "/v1/tenant/members/"+in.Member.Id, "").status)
		shapes = append(shapes, fmt.Sprint(made.status, accepted.status, in.Tenants))
		again := attacker.accept(t, attacker.invite(t, address, "admin").Token, anotherPassword).signedIn(t)

		reset := attacker.send(t, "POST", "/v1/tenant/members/"+again.Member.Id+"/reset", "").invitation(t)
		require.Equal(t, 200, attacker.accept(t, reset.Token, "the third password of a stranger").status)
	}
	require.Equal(t, shapes[0], shapes[1], "known elsewhere or not, the answers are the same")

	in := b.logIn(t, ada.Email)
	require.Equal(t, ada.ID.String(), in.Member.Id, "her password still signs her in, without a choice")
	for _, stranger := range []string{anotherPassword, "the third password of a stranger"} {
		b.tryLogIn(t, ada.Email, stranger, b.tenant.ID.String()).problem(t, 401, "unauthorized")
	}
	require.Equal(t, attacker.tenant.ID.String(), b.tryLogIn(t, ada.Email, "the third password of a stranger", "").signedIn(t).Member.TenantId)
	owns := b.accept(t, b.invite(t, unknown, "viewer").Token, password).signedIn(t)
	require.Equal(t, b.tenant.ID.String(), owns.Member.TenantId, "an e-mail that a tenant was first with is not its own")
}

func TestPasswordChangeAppliesToAllTenantsWithSamePassword(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.beside(t)
	address := email("ada")
	here := b.accept(t, b.invite(t, address, "viewer").Token, password).signedIn(t)
	there := b.accept(t, other.invite(t, address, "admin").Token, password).signedIn(t)
	require.Len(t, b.logIn(t, address).Tenants, 2)

	change := func(current, next string, as signedIn) answer {
		body, err := json.Marshal(map[string]string{"current": current, "new": next})
		require.NoError(t, err)
		return b.send(t, "PUT", "/v1/auth/password", string(body), bearer(as.Token))
	}
	require.Equal(t, 200, change(password, anotherPassword, here).status)
	require.Equal(t, []int{200, 401}, []int{b.whoAmI(t, here.Token), b.whoAmI(t, there.Token)})
	b.tryLogIn(t, address, password, "").problem(t, 401, "unauthorized")
	require.Len(t, b.tryLogIn(t, address, anotherPassword, "").signedIn(t).Tenants, 2)
	for _, tenant := range []metering.TenantID{b.tenant.ID, other.tenant.ID} {
		var changes int
		require.NoError(t, dbtest.Conn(t).QueryRow(t.Context(), `select count(*) from audit_log where tenant_id = $1 and action = 'member.set_password'`, tenant).Scan(&changes))
		require.Equal(t, 1, changes)
	}
	var left int
	require.NoError(t, dbtest.Conn(t).QueryRow(t.Context(), `select count(*) from people where email = $1`, metering.FoldEmail(address)).Scan(&left))
	require.Equal(t, 1, left, "the former password is forgotten")
}

func TestPasswordResetAffectsOneTenantAndNeverItsOwner(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.beside(t)
	owner := b.member(t, b.tenant.ID, email("owner"), metering.RoleOwner)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer)
	b.member(t, other.tenant.ID, ada.Email, metering.RoleAdmin)
	there := b.tryLogIn(t, ada.Email, password, other.tenant.ID.String()).signedIn(t)
	here := b.tryLogIn(t, ada.Email, password, b.tenant.ID.String()).signedIn(t)

	reset := b.send(t, "POST", "/v1/tenant/members/"+ada.ID.String()+"/reset", "").invitation(t)
	require.Equal(t, 200, b.whoAmI(t, here.Token), "a link alone changes nothing")
	in := b.accept(t, reset.Token, anotherPassword).signedIn(t)
	require.Equal(t, ada.ID.String(), in.Member.Id)
	require.Equal(t, []int{401, 200, 200}, []int{b.whoAmI(t, here.Token), b.whoAmI(t, there.Token), b.whoAmI(t, in.Token)})
	require.Equal(t, other.tenant.ID.String(), b.logIn(t, ada.Email).Member.TenantId, "the former password is left to the other tenant alone")
	require.Equal(t, ada.ID.String(), b.tryLogIn(t, ada.Email, anotherPassword, "").signedIn(t).Member.Id)

	path := "/v1/tenant/members/" + owner.ID.String() + "/reset"
	b.send(t, "POST", path, "").problem(t, 403, "forbidden")
	signedIn := bearer(b.logIn(t, owner.Email).Token)
	own := b.send(t, "POST", path, "", signedIn).invitation(t)
	link := "/v1/tenant/invitations/" + own.Id
	b.send(t, "POST", link+"/renew", "").problem(t, 403, "forbidden")
	b.send(t, "DELETE", link, "").problem(t, 403, "forbidden")
	require.Equal(t, 200, b.find(t, own.Token).status, "what was refused has changed nothing")
	b.send(t, "POST", link+"/renew", "", signedIn).invitation(t)
	require.Equal(t, 200, b.send(t, "DELETE", link, "", signedIn).status)

	gone := b.send(t, "POST", "/v1/tenant/members/"+ada.ID.String()+"/reset", "").invitation(t)
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/members/"+ada.ID.String(), "").status)
	b.accept(t, gone.Token, anotherPassword).problem(t, 404, "not_found")
}

func TestResetLinkExpiresWhenMembersRoleChanges(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer)
	path := "/v1/tenant/members/" + ada.ID.String()
	for _, change := range [][3]string{{"PATCH", "", `{"role":"admin"}`}, {"POST", "/make-owner", ""}} {
		reset := b.send(t, "POST", path+"/reset", "").invitation(t)
		require.Equal(t, 200, b.send(t, "PATCH", path, `{"name":"Ada"}`).status)
		require.Equal(t, 200, b.find(t, reset.Token).status, "a name gives nothing")
		require.Equal(t, 200, b.send(t, change[0], path+change[1], change[2]).status)
		b.accept(t, reset.Token, anotherPassword).problem(t, 404, "not_found")
	}

	own := b.send(t, "POST", path+"/reset", "", bearer(b.logIn(t, ada.Email).Token)).invitation(t)
	heir := b.member(t, b.tenant.ID, email("heir"), metering.RoleViewer)
	require.Equal(t, 200, b.send(t, "POST", "/v1/tenant/members/"+heir.ID.String()+"/make-owner", "").status)
	b.accept(t, own.Token, anotherPassword).problem(t, 404, "not_found")
}

func TestConcurrentUsesOfInvitationTokenCreateOneMember(t *testing.T) {
	t.Parallel()
	b := setup(t)
	invited := b.invite(t, email("ada"), "viewer")
	statuses := make([]int, 6)
	var all sync.WaitGroup
	for i := range statuses {
		all.Go(func() { statuses[i] = b.accept(t, invited.Token, password).status })
	}
	all.Wait()
	counted := map[int]int{}
	for _, status := range statuses {
		counted[status]++
	}
	require.Equal(t, map[int]int{200: 1, 404: 5}, counted)
}

func TestPasswordGuessesByInvitationCountAsSignInAttempts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	attacker := b.beside(t)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleOwner)
	statuses := map[int]int{}
	for n := range 12 {
		a := attacker.accept(t, attacker.invite(t, ada.Email, "viewer").Token, fmt.Sprintf("guess number %d of a stranger", n))
		if statuses[a.status]++; a.status == 200 {
			require.Equal(t, 200, attacker.send(t, "DELETE", "/v1/tenant/members/"+a.signedIn(t).Member.Id, "").status)
		}
	}
	require.Equal(t, map[int]int{200: 10, 429: 2}, statuses)
}

// TestInvitationMessagesContainNoTokenOrEMail checks that webhook messages contain neither the token of a link nor an
// e-mail. More people can read a webhook's messages than may invite members.
func TestInvitationMessagesContainNoTokenOrEMail(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.makeHook(t, `{"url":"https://example.com/mail","event_types":["member.invited","password_reset.requested"]}`)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer)
	invited := b.invite(t, email("bob"), "viewer")
	ask := func(address string) {
		a := b.send(t, "POST", "/v1/password-resets", fmt.Sprintf(`{"email":%q}`, address), "Authorization: ")
		require.Equal(t, http.StatusAccepted, a.status, a.body)
		require.JSONEq(t, `{"accepted":true}`, a.body)
	}
	messages := func() (all []string) {
		rows, err := dbtest.Conn(t).Query(t.Context(), `select kind || ' ' || payload from outbox where tenant_id = $1 order by created_at, id`, b.tenant.ID)
		require.NoError(t, err)
		for rows.Next() {
			var text string
			require.NoError(t, rows.Scan(&text))
			all = append(all, text)
		}
		require.NoError(t, rows.Err())
		return all
	}
	ask(email("nobody"))
	ask(strings.ToUpper(ada.Email))
	dbtest.Eventually(t, func() error {
		if n := len(messages()); n != 2 {
			return fmt.Errorf("%d messages", n)
		}
		return nil
	})
	ask(ada.Email)
	b.ahead.Store(int64(11 * time.Minute))
	ask(ada.Email)
	dbtest.Eventually(t, func() error {
		if n := len(messages()); n != 3 {
			return fmt.Errorf("%d messages", n)
		}
		return nil
	})
	all := messages()
	require.Contains(t, all[0], "member.invited ")
	require.Contains(t, all[0], invited.Id)
	require.Contains(t, all[1], "password_reset.requested ")
	require.Contains(t, all[1], ada.ID.String())
	for _, message := range all {
		require.NotContains(t, message, invited.Token)
		require.NotContains(t, message, "@", "nor an e-mail")
	}
	mailed := b.send(t, "POST", "/v1/tenant/invitations/"+invited.Id+"/renew", "").invitation(t)
	b.accept(t, invited.Token, password).problem(t, 404, "not_found")
	require.Equal(t, 200, b.accept(t, mailed.Token, password).status)
}
