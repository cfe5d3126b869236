package api_test

import (
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/client"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
)

const password = "correct horse battery staple"

// email returns an address that no other test uses.
func email(name string) string { return name + "-" + uuid.NewString() + "@example.com" }

// member stores a new member of a tenant, with the password of the tests.
func (b *bundle) member(t testing.TB, tenant metering.TenantID, email string, role metering.Role) metering.Member {
	t.Helper()
	passwords, err := api.NewPasswords(b.deps.Secret)
	require.NoError(t, err)
	m, err := b.store.Members.Create(t.Context(), tenant, metering.Operator, metering.Member{Email: email, Role: role}, passwords.Hash(email, password))
	require.NoError(t, err)
	return m
}

// logInBody returns the request body of a login.
func logInBody(email, password, tenant string) string {
	text, _ := json.Marshal(map[string]string{"email": email, "password": password, "tenant_id": tenant})
	return string(text)
}

// signedIn is the response to a sign-in.
type signedIn struct {
	Token     string
	ExpiresAt time.Time `json:"expires_at"`
	CSRFToken string    `json:"csrf_token"`
	Member    client.Member
	Tenants   []client.SessionTenant
}

// signedIn returns the session in the response to a login.
func (a answer) signedIn(t testing.TB) (in signedIn) {
	t.Helper()
	require.Equal(t, 200, a.status, a.body)
	require.NoError(t, json.Unmarshal([]byte(a.body), &in))
	return in
}

// logIn logs a member in with the password of the tests.
func (b *bundle) logIn(t testing.TB, email string) signedIn {
	t.Helper()
	return b.send(t, "POST", "/v1/auth/login", logInBody(email, password, ""), "Authorization: ").signedIn(t)
}

// bearer returns the header with a token.
func bearer(token string) string { return "Authorization: Bearer " + token }

// whoAmI returns the status of GET /v1/auth/session with the token.
func (b *bundle) whoAmI(t testing.TB, token string) int {
	t.Helper()
	return b.send(t, "GET", "/v1/auth/session", "", bearer(token)).status
}

func TestSessionShowsSignedInMember(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.member(t, b.tenant.ID, email("Ada"), metering.RoleBilling)
	asked := b.now()
	in := b.logIn(t, strings.ToUpper(ada.Email))
	require.Equal(t, ada.ID.String(), in.Member.Id)
	require.WithinRange(t, in.ExpiresAt, asked.Add(12*time.Hour), b.now().Add(12*time.Hour))

	a := b.send(t, "GET", "/v1/auth/session", "", bearer(in.Token))
	require.Equal(t, 200, a.status, a.body)
	var session client.Session
	require.NoError(t, json.Unmarshal([]byte(a.body), &session))
	require.Equal(t, b.tenant.ID.String(), session.Tenant.Id)
	require.Equal(t, ada.Email, session.Member.Email)
	require.Equal(t, "billing", string(session.Member.Role))
	require.Equal(t, []string{
		"alerts:read", "billing:read", "billing:write", "customers:read", "events:read", "meters:read", "pricing:read", "pricing:write",
		"quotas:read", "session:own", "usage:read", "webhooks:read",
	}, session.Permissions)
	require.NotContains(t, a.body, "argon2")

	require.Nil(t, session.WorkflowsUrl, "the deployment names no Temporal UI")
	const workflows = "https://temporal.example.com/namespaces/default/workflows"
	named := b.replica(t, func(d *api.Deps) { d.WorkflowsURL = workflows })
	require.Contains(t, named.send(t, "GET", "/v1/auth/session", "", bearer(in.Token)).body, `"workflows_url":"`+workflows+`"`)

	program := b.send(t, "GET", "/v1/auth/session", "")
	require.Contains(t, program.body, `"scope":"admin"`)
	require.NotContains(t, program.body, `"member"`)
	b.send(t, "POST", "/v1/auth/logout", "").problem(t, 403, "forbidden")
}

func TestSessionTokenContainsOnlyIDsAndTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleOwner)
	in := b.logIn(t, ada.Email)
	payload, err := base64.RawURLEncoding.DecodeString(strings.Split(in.Token, ".")[1])
	require.NoError(t, err)
	var claims map[string]any
	require.NoError(t, json.Unmarshal(payload, &claims))
	require.Len(t, claims, 6)
	require.Equal(t, "odometer", claims["iss"])
	require.Equal(t, ada.ID.String(), claims["sub"])
	require.Equal(t, b.tenant.ID.String(), claims["tenant"])
	require.Contains(t, claims, "sid")
	require.InDelta(t, 12*3600, claims["exp"].(float64)-claims["iat"].(float64), 0)
}

func TestRemovedMemberLosesAccessImmediatelyOnEveryReplica(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.replica(t, func(*api.Deps) {})
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleAdmin)
	in := b.logIn(t, ada.Email)
	require.Equal(t, 200, other.send(t, "GET", "/v1/customers", "", bearer(in.Token)).status)
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/members/"+ada.ID.String(), "").status)
	require.Equal(t, 401, other.send(t, "GET", "/v1/customers", "", bearer(in.Token)).status)
	require.Equal(t, 401, b.whoAmI(t, in.Token))
	b.send(t, "POST", "/v1/auth/login", logInBody(ada.Email, password, ""), "Authorization: ").problem(t, 401, "unauthorized")
}

func TestRoleChangeAppliesToNextRequest(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.replica(t, func(*api.Deps) {})
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleAdmin)
	in := b.logIn(t, ada.Email)
	require.Equal(t, 200, other.send(t, "GET", "/v1/api-keys", "", bearer(in.Token)).status)
	require.Equal(t, 200, b.send(t, "PATCH", "/v1/tenant/members/"+ada.ID.String(), `{"role":"viewer"}`).status)
	other.send(t, "GET", "/v1/api-keys", "", bearer(in.Token)).problem(t, 403, "forbidden")
	require.Equal(t, 200, other.send(t, "GET", "/v1/customers", "", bearer(in.Token)).status)
}

func TestLoggingOutEndsOneSessionOrAllOfThemOnEveryReplica(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := b.replica(t, func(*api.Deps) {})
	ada, bob := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer), b.member(t, b.tenant.ID, email("bob"), metering.RoleViewer)
	first, second, third, bobs := b.logIn(t, ada.Email), b.logIn(t, ada.Email), other.logIn(t, ada.Email), b.logIn(t, bob.Email)

	require.Equal(t, 200, b.send(t, "POST", "/v1/auth/logout", "", bearer(first.Token)).status)
	require.Equal(t, 401, other.whoAmI(t, first.Token))
	require.Equal(t, 200, other.whoAmI(t, second.Token))

	require.Equal(t, 200, b.send(t, "POST", "/v1/auth/logout-all", "", bearer(second.Token)).status)
	for _, at := range []*bundle{b, other} {
		require.Equal(t, 401, at.whoAmI(t, second.Token))
		require.Equal(t, 401, at.whoAmI(t, third.Token))
		require.Equal(t, 200, at.whoAmI(t, bobs.Token))
	}
}

// forge creates a token with a key and claims that the test chooses.
func forge(t *testing.T, algorithm jose.SignatureAlgorithm, key []byte, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, nil)
	require.NoError(t, err)
	token, err := jwt.Signed(signer).Claims(claims).Serialize()
	require.NoError(t, err)
	return token
}

func TestForgedSessionTokenIsRefused(t *testing.T) {
	t.Parallel()
	b, theirs := setup(t), setup(t)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleOwner)
	bob := b.member(t, b.tenant.ID, email("bob"), metering.RoleViewer)
	in := b.logIn(t, bob.Email)
	key, err := hkdf.Key(sha256.New, b.deps.Secret, nil, "odometer/session-tokens", sha256.Size)
	require.NoError(t, err)
	parts := strings.Split(in.Token, ".")
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	require.NoError(t, err)
	changed := func(name string, value any) map[string]any {
		var claims map[string]any
		require.NoError(t, json.Unmarshal(payload, &claims))
		if claims[name] = value; value == nil {
			delete(claims, name)
		}
		return claims
	}
	require.Equal(t, 200, b.whoAmI(t, forge(t, jose.HS256, key, changed("x", 1))), "the test can forge")

	none := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none","typ":"JWT"}`))
	asAda, err := json.Marshal(changed("sub", ada.ID.String()))
	require.NoError(t, err)
	for name, token := range map[string]string{
		"no signature":          parts[0] + "." + parts[1] + ".",
		"alg none":              none + "." + parts[1] + ".",
		"alg none, signed":      none + "." + parts[1] + "." + parts[2],
		"other claims":          parts[0] + "." + base64.RawURLEncoding.EncodeToString(asAda) + "." + parts[2],
		"other key":             forge(t, jose.HS256, make([]byte, 32), changed("x", 1)),
		"other algorithm":       forge(t, jose.HS512, append(key, key...), changed("x", 1)),
		"another's session":     forge(t, jose.HS256, key, changed("sub", ada.ID.String())),
		"another tenant":        forge(t, jose.HS256, key, changed("tenant", theirs.tenant.ID.String())),
		"no tenant":             forge(t, jose.HS256, key, changed("tenant", nil)),
		"another session":       forge(t, jose.HS256, key, changed("sid", uuid.NewString())),
		"no session":            forge(t, jose.HS256, key, changed("sid", nil)),
		"another issuer":        forge(t, jose.HS256, key, changed("iss", "https://example.com")),
		"expired":               forge(t, jose.HS256, key, changed("exp", b.now().Add(-time.Second).Unix())),
		"without expiry":        forge(t, jose.HS256, key, changed("exp", nil)),
		"too long":              forge(t, jose.HS256, key, changed("x", strings.Repeat("x", 2000))),
		"not a token":           "a.b.c",
		"encrypted, not signed": "a.b.c.d.e",
	} {
		require.Equal(t, 401, b.whoAmI(t, token), name)
	}
	require.Equal(t, 401, theirs.whoAmI(t, in.Token), "another installation's secret")
	require.Equal(t, 200, b.whoAmI(t, in.Token))
}

func TestASessionEndsAfterTwelveHours(t *testing.T) {
	t.Parallel()
	b := setup(t)
	in := b.logIn(t, b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer).Email)
	b.ahead.Store(int64(12*time.Hour - time.Minute))
	require.Equal(t, 200, b.whoAmI(t, in.Token))
	b.ahead.Store(int64(12*time.Hour + time.Second))
	require.Equal(t, 401, b.whoAmI(t, in.Token))
}

func TestSignInErrorDoesNotRevealMembership(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer)
	removed := b.member(t, b.tenant.ID, email("removed"), metering.RoleViewer)
	require.NoError(t, b.store.Members.Remove(t.Context(), b.tenant.ID, metering.Operator, removed.ID, "", b.now()))
	atIssuer := email("issuer")
	_, err := b.store.Members.Create(t.Context(), b.tenant.ID, metering.Operator, metering.Member{Email: atIssuer, Role: metering.RoleViewer}, nil)
	require.NoError(t, err)

	var first api.Problem
	for name, body := range map[string]string{
		"wrong password":    logInBody(ada.Email, password+"x", ""),
		"empty password":    logInBody(ada.Email, "", ""),
		"wrong tenant":      logInBody(ada.Email, password, dbtest.Tenant(t, b.store).ID.String()),
		"no such tenant":    logInBody(ada.Email, password, "nope"),
		"nobody":            logInBody(email("nobody"), password, ""),
		"no e-mail":         logInBody("nobody", password, ""),
		"removed":           logInBody(removed.Email, password, ""),
		"without password":  logInBody(atIssuer, password, ""),
		"NUL in the e-mail": `{"email":"a\u0000@example.com","password":"x"}`,
	} {
		a := b.send(t, "POST", "/v1/auth/login", body, "Authorization: ")
		p := a.problem(t, 401, "unauthorized")
		require.Empty(t, a.header.Get("Set-Cookie"), name)
		p.RequestID = ""
		if first.Code == "" {
			first = p
		}
		require.Equal(t, first, p, name)
	}
}

func TestMemberOfSeveralTenantsChoosesTenantAtSignIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	other := dbtest.Tenant(t, b.store)
	here := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer)
	there := b.member(t, other.ID, here.Email, metering.RoleAdmin)
	in := b.logIn(t, here.Email)
	require.Empty(t, in.Token, "nobody is signed in before they have chosen")
	require.Len(t, in.Tenants, 2)
	require.Equal(t, []string{b.tenant.ID.String(), other.ID.String()}, []string{in.Tenants[0].Id, in.Tenants[1].Id})
	for tenant, m := range map[metering.TenantID]metering.Member{b.tenant.ID: here, other.ID: there} {
		chosen := b.send(t, "POST", "/v1/auth/login", logInBody(here.Email, password, tenant.String()), "Authorization: ").signedIn(t)
		require.Equal(t, m.ID.String(), chosen.Member.Id)
		require.Equal(t, 200, b.whoAmI(t, chosen.Token))
	}
	require.NoError(t, b.store.Members.Remove(t.Context(), other.ID, metering.Operator, there.ID, "", b.now()))
	require.NotEmpty(t, b.logIn(t, here.Email).Token, "one is left")
}

func TestSignInsAreLimitedByAccountAndByAddress(t *testing.T) {
	t.Parallel()
	b := setup(t)
	try := func(email string) answer {
		return b.send(t, "POST", "/v1/auth/login", logInBody(email, "wrong", ""), "Authorization: ")
	}
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer)
	for _, account := range []string{ada.Email, email("nobody")} {
		for range 10 {
			try(account).problem(t, 401, "unauthorized")
		}
		a := try(strings.ToUpper(account))
		require.Contains(t, a.problem(t, 429, "rate_limited").Detail, "to this account")
		require.Regexp(t, "^([1-9]|[1-5][0-9]|60)$", a.header.Get("Retry-After"))
	}
	for range 8 {
		try(email("nobody")).problem(t, 401, "unauthorized")
	}
	require.Contains(t, try(email("nobody")).problem(t, 429, "rate_limited").Detail, "from this address")
	b.send(t, "GET", "/v1/auth/oidc/"+b.tenant.ID.String()+"/login", "").problem(t, 429, "rate_limited")
	require.Equal(t, 200, b.send(t, "GET", "/v1/customers", "").status, "others at the address go on working")

	b.ahead.Store(int64(time.Minute + time.Second))
	b.logIn(t, ada.Email)
}

func TestGuessesBlockOnlyTheirOwnAddress(t *testing.T) {
	t.Parallel()
	b := setup(t).strict(t, 1_000_000)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer)
	logIn := func(password, address string) answer {
		return b.send(t, "POST", "/v1/auth/login", logInBody(ada.Email, password, ""), "Authorization: ", forwardedFor(address))
	}
	for range 10 {
		logIn("wrong", "198.51.100.7").problem(t, 401, "unauthorized")
	}
	logIn(password, "198.51.100.7").problem(t, 429, "rate_limited")
	require.Equal(t, 200, logIn(password, "198.51.100.8").status)
}

// TestReplicasCountSignInsAndFailuresTogether checks that replicas share the counts of sign-ins and of failed attempts.
func TestReplicasCountSignInsAndFailuresTogether(t *testing.T) {
	t.Parallel()
	shared, err := api.OpenRedis(os.Getenv("TEST_REDIS_URL"))
	require.NoError(t, err)
	defer shared.Close()
	b := setup(t)
	replica := func() *bundle {
		return b.replica(t, func(d *api.Deps) {
			d.Redis, d.FailuresPerMinute, d.TrustedProxies = shared, 12, []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		})
	}
	replicas := []*bundle{replica(), replica()}
	someone := email("someone")
	for _, c := range map[string]struct {
		allowed int
		send    func(r *bundle) answer
	}{
		"sign-ins of an account": {10, func(r *bundle) answer {
			return r.send(t, "POST", "/v1/auth/login", logInBody(someone, "wrong", ""), "Authorization: ", forwardedFor("198.51.100.9"))
		}},
		"failures of an address": {12, func(r *bundle) answer {
			return r.send(t, "GET", "/v1/customers", "", "Authorization: Bearer guess", forwardedFor("198.51.100.10"))
		}},
	} {
		for i := range c.allowed {
			c.send(replicas[i%2]).problem(t, 401, "unauthorized")
		}
		for _, r := range replicas {
			c.send(r).problem(t, 429, "rate_limited")
		}
	}
}

func TestANewPasswordEndsTheOtherSessions(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer)
	in, other := b.logIn(t, ada.Email), b.logIn(t, ada.Email)
	change := func(current, next string) answer {
		body, _ := json.Marshal(map[string]string{"current": current, "new": next})
		return b.send(t, "PUT", "/v1/auth/password", string(body), bearer(in.Token))
	}
	change("wrong", "another password").problem(t, 422, "invalid")
	for _, bad := range []string{"short", strings.Repeat("x", 257), strings.Repeat("é", 129), "elevenchars"} {
		change(password, bad).problem(t, 422, "invalid")
	}
	require.Equal(t, 200, b.whoAmI(t, other.Token))
	require.Equal(t, 200, change(password, "Zwölf Zeich.").status)
	require.Equal(t, 200, b.whoAmI(t, in.Token))
	require.Equal(t, 401, b.whoAmI(t, other.Token))
	b.send(t, "POST", "/v1/auth/login", logInBody(ada.Email, password, ""), "Authorization: ").problem(t, 401, "unauthorized")
	require.Equal(t, 200, b.send(t, "POST", "/v1/auth/login", logInBody(ada.Email, "Zwölf Zeich.", ""), "Authorization: ").status)
	b.send(t, "PUT", "/v1/auth/password", `{"current":"x","new":"another password"}`).problem(t, 403, "forbidden")
}

// cookie logs a member in, and returns the session cookie and the CSRF token.
func (b *bundle) cookie(t *testing.T, email string) (cookie *http.Cookie, csrf string) {
	t.Helper()
	a := b.send(t, "POST", "/v1/auth/login", logInBody(email, password, ""), "Authorization: ")
	cookie, err := http.ParseSetCookie(a.header.Get("Set-Cookie"))
	require.NoError(t, err)
	in := a.signedIn(t)
	require.Equal(t, in.Token, cookie.Value)
	return cookie, in.CSRFToken
}

func TestCookieWithoutCSRFTokenCannotWrite(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleDeveloper)
	cookie, csrf := b.cookie(t, ada.Email)
	_, others := b.cookie(t, ada.Email)
	with := func(method, path, body string, headers ...string) answer {
		return b.send(t, method, path, body, append([]string{"Authorization: ", "Cookie: " + cookie.Name + "=" + cookie.Value}, headers...)...)
	}
	a := with("GET", "/v1/auth/session", "")
	require.Equal(t, 200, a.status, a.body)
	require.Contains(t, a.body, csrf)

	made := `{"external_id":"acme"}`
	for _, token := range []string{"", others, csrf + "x", "x"} {
		with("POST", "/v1/customers", made, "X-CSRF-Token: "+token).problem(t, 403, "forbidden")
		with("POST", "/v1/auth/logout", "", "X-CSRF-Token: "+token).problem(t, 403, "forbidden")
		with("PATCH", "/v1/meters/nope", `{"name":"x"}`, "X-CSRF-Token: "+token).problem(t, 403, "forbidden")
	}
	with("GET", "/v1/customers/acme", "").problem(t, 404, "not_found")
	require.Equal(t, 201, with("POST", "/v1/customers", made, "X-CSRF-Token: "+csrf).status)

	out := with("POST", "/v1/auth/logout", "", "X-CSRF-Token: "+csrf)
	require.Equal(t, 200, out.status, out.body)
	gone, err := http.ParseSetCookie(out.header.Get("Set-Cookie"))
	require.NoError(t, err)
	require.Equal(t, cookie.Name, gone.Name)
	require.Negative(t, gone.MaxAge)
	with("GET", "/v1/auth/session", "").problem(t, 401, "unauthorized")
}

func TestSessionCookieIsSameSiteAndHTTPOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer)
	plain, _ := b.cookie(t, ada.Email)
	require.Equal(t, "odometer_session", plain.Name)
	require.False(t, plain.Secure)
	https := b.replica(t, func(d *api.Deps) { d.BaseURL = "https://odometer.example.com" })
	secure, _ := https.cookie(t, ada.Email)
	require.Equal(t, "__Host-odometer_session", secure.Name)
	require.True(t, secure.Secure)
	for _, c := range []*http.Cookie{plain, secure} {
		require.True(t, c.HttpOnly)
		require.Equal(t, http.SameSiteStrictMode, c.SameSite)
		require.Equal(t, "/", c.Path)
		require.Empty(t, c.Domain)
		require.Equal(t, 12*3600, c.MaxAge)
	}
	a := https.send(t, "GET", "/v1/auth/session", "", "Authorization: ", "Cookie: "+plain.Name+"="+plain.Value)
	a.problem(t, 401, "unauthorized")
	require.Equal(t, 200, https.send(t, "GET", "/v1/auth/session", "", "Authorization: ", "Cookie: "+secure.Name+"="+secure.Value).status)
}

// TestSignInWithNULInEMailIsRefusedWithoutQuery signs in with an e-mail that contains a NUL. No valid e-mail
// contains a NUL, and the database rejects a query with one.
func TestSignInWithNULInEMailIsRefusedWithoutQuery(t *testing.T) {
	t.Parallel()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	b := setup(t).replica(t, func(d *api.Deps) { d.Log = slog.New(slog.NewTextHandler(log, nil)) })
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer)
	for _, as := range []string{"a\x00da@example.com", ada.Email} {
		b.send(t, "POST", "/v1/auth/login", logInBody(as, "a wrong password", ""), "Authorization: ").problem(t, 401, "unauthorized")
	}
	dbtest.Eventually(t, func() error {
		if n := len(b.audited(t, "session.refuse")); n != 1 {
			return fmt.Errorf("%d refusals", n)
		}
		return nil
	})
	require.NoError(t, log.Close())
	written, err := os.ReadFile(log.Name())
	require.NoError(t, err)
	require.NotContains(t, string(written), "to the audit log")
}
