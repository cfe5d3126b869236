package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/oauth2-proxy/mockoidc"
	"github.com/stretchr/testify/require"

	"github.com/odometer-metering/odometer/api"
	"github.com/odometer-metering/odometer/db/dbtest"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// person is who signs in at the issuer; change is what it says wrongly of them.
type person struct {
	mockoidc.MockUser
	change func(*mockoidc.IDTokenClaims)
}

func (p *person) Claims(scope []string, claims *mockoidc.IDTokenClaims) (jwt.Claims, error) {
	if p.change != nil {
		p.change(claims)
	}
	return p.MockUser.Claims(scope, claims)
}

func newPerson(email string) *person {
	return &person{MockUser: mockoidc.MockUser{Subject: email, Email: email, EmailVerified: true}}
}

// browser keeps cookies, and follows redirects one at a time.
type browser struct{ *http.Client }

func newBrowser(t *testing.T) browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return browser{&http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

func (b browser) open(t *testing.T, address string) (status int, location string) {
	t.Helper()
	response, err := b.Get(address)
	require.NoError(t, err)
	defer response.Body.Close()
	return response.StatusCode, response.Header.Get("Location")
}

// saveIssuer makes an issuer the tenant's.
func (b *bundle) saveIssuer(t *testing.T, op *mockoidc.MockOIDC) {
	t.Helper()
	body := fmt.Sprintf(`{"issuer":%q,"client_id":%q,"client_secret":%q,"redirect_base":%q}`, op.Issuer(), op.ClientID, op.ClientSecret, b.url)
	a := b.send(t, "PUT", "/v1/tenant/oidc", body)
	require.Equal(t, 200, a.status, a.body)
	require.NotContains(t, a.body, op.ClientSecret)
	require.Contains(t, a.body, b.url+"/v1/auth/oidc/callback")
}

func newIssuer(t *testing.T) *mockoidc.MockOIDC {
	t.Helper()
	op, err := mockoidc.Run()
	require.NoError(t, err)
	t.Cleanup(func() { _ = op.Shutdown() })
	return op
}

// authorizedAt goes to the issuer as a person and returns the way back.
func (b *bundle) authorizedAt(t *testing.T, op *mockoidc.MockOIDC, with browser, as *person) (callback string) {
	t.Helper()
	op.QueueUser(as)
	status, authorize := with.open(t, b.url+"/v1/auth/oidc/"+b.tenant.ID.String()+"/login")
	require.Equal(t, http.StatusFound, status)
	require.True(t, strings.HasPrefix(authorize, op.AuthorizationEndpoint()+"?"), authorize)
	query, err := url.Parse(authorize)
	require.NoError(t, err)
	require.Equal(t, "S256", query.Query().Get("code_challenge_method"))
	require.NotEmpty(t, query.Query().Get("code_challenge"))
	require.NotEmpty(t, query.Query().Get("nonce"))
	status, callback = with.open(t, authorize)
	require.Equal(t, http.StatusFound, status)
	require.True(t, strings.HasPrefix(callback, b.url+"/v1/auth/oidc/callback?"), callback)
	return callback
}

func TestAMemberSignsInAtTheTenantsIssuer(t *testing.T) {
	t.Parallel()
	b, op := setup(t), newIssuer(t)
	b.saveIssuer(t, op)
	address := email("ada")
	ada, err := b.store.Members.Create(t.Context(), b.tenant.ID, metering.Operator, metering.Member{Email: address, Role: metering.RoleBilling}, nil)
	require.NoError(t, err)
	other := dbtest.Tenant(t, b.store)
	b.member(t, other.ID, address, metering.RoleOwner) // the issuer fixes the tenant

	with := newBrowser(t)
	callback := b.authorizedAt(t, op, with, newPerson(strings.ToUpper(address)))
	status, location := with.open(t, callback)
	require.Equal(t, http.StatusFound, status)
	require.Equal(t, b.url+"/", location)
	response, err := with.Get(b.url + "/v1/auth/session")
	require.NoError(t, err)
	defer response.Body.Close()
	var session struct {
		Tenant struct{ ID string }
		Member struct{ ID, Role string }
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&session))
	require.Equal(t, b.tenant.ID.String(), session.Tenant.ID)
	require.Equal(t, ada.ID.String(), session.Member.ID)
	require.Equal(t, "billing", session.Member.Role)

	status, _ = with.open(t, callback)
	require.Equal(t, 401, status, "a way back is used once")
}

func TestTheIssuersWordIsCheckedBeforeAnybodyIsSignedIn(t *testing.T) {
	t.Parallel()
	b, op := setup(t), newIssuer(t)
	b.saveIssuer(t, op)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer)
	removed := b.member(t, b.tenant.ID, email("removed"), metering.RoleViewer)
	require.NoError(t, b.store.Members.Remove(t.Context(), b.tenant.ID, metering.Operator, removed.ID))
	elsewhere := b.member(t, dbtest.Tenant(t, b.store).ID, email("elsewhere"), metering.RoleViewer)
	unverified := newPerson(ada.Email)
	unverified.EmailVerified = false
	claiming := func(change func(*mockoidc.IDTokenClaims)) *person {
		p := newPerson(ada.Email)
		p.change = change
		return p
	}
	for name, as := range map[string]*person{
		"a stranger":                 newPerson(email("nobody")),
		"a member of another tenant": newPerson(elsewhere.Email),
		"a removed member":           newPerson(removed.Email),
		"an unverified e-mail":       unverified,
		"no e-mail":                  newPerson(""),
		"another nonce":              claiming(func(c *mockoidc.IDTokenClaims) { c.Nonce = "another" }),
		"no nonce":                   claiming(func(c *mockoidc.IDTokenClaims) { c.Nonce = "" }),
		"another issuer":             claiming(func(c *mockoidc.IDTokenClaims) { c.Issuer = "https://accounts.example.com" }),
		"another audience":           claiming(func(c *mockoidc.IDTokenClaims) { c.Audience = jwt.ClaimStrings{"another"} }),
		"expired": claiming(func(c *mockoidc.IDTokenClaims) {
			c.ExpiresAt = jwt.NewNumericDate(time.Now().Add(-time.Minute))
		}),
	} {
		with := newBrowser(t)
		callback := b.authorizedAt(t, op, with, as)
		status, _ := with.open(t, callback)
		require.Equal(t, 401, status, name)
		status, _ = with.open(t, b.url+"/v1/auth/session")
		require.Equal(t, 401, status, name)
	}
	with := newBrowser(t)
	status, _ := with.open(t, b.authorizedAt(t, op, with, newPerson(ada.Email)))
	require.Equal(t, http.StatusFound, status, "and one who is a member signs in")
}

func TestAWayBackIsForTheBrowserThatLeft(t *testing.T) {
	t.Parallel()
	b, op := setup(t), newIssuer(t)
	op.AccessTTL = time.Hour // longer than a way back may take
	b.saveIssuer(t, op)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer)
	refused := func(with browser, callback, why string) {
		status, _ := with.open(t, callback)
		require.Equal(t, 401, status, why)
		status, _ = with.open(t, b.url+"/v1/auth/session")
		require.Equal(t, 401, status, why)
	}
	changed := func(callback, name, value string) string {
		u, err := url.Parse(callback)
		require.NoError(t, err)
		query := u.Query()
		query.Set(name, value)
		u.RawQuery = query.Encode()
		return u.String()
	}
	with := newBrowser(t)
	callback := b.authorizedAt(t, op, with, newPerson(ada.Email))
	refused(newBrowser(t), callback, "another browser")
	refused(with, changed(callback, "state", "another"), "another state")
	refused(with, changed(callback, "iss", "https://accounts.example.com"), "another issuer's way back")
	refused(with, callback, "used up")

	with = newBrowser(t)
	refused(with, changed(b.authorizedAt(t, op, with, newPerson(ada.Email)), "code", "another"), "another code")
	with = newBrowser(t)
	refused(with, changed(b.authorizedAt(t, op, with, newPerson(ada.Email)), "error", "access_denied"), "the issuer said no")

	with = newBrowser(t)
	callback = b.authorizedAt(t, op, with, newPerson(ada.Email))
	_, err := dbtest.Conn(t).Exec(t.Context(), `update oidc_sign_ins set verifier = 'another' where tenant_id = $1`, b.tenant.ID)
	require.NoError(t, err)
	refused(with, callback, "another PKCE verifier")

	with = newBrowser(t)
	callback = b.authorizedAt(t, op, with, newPerson(ada.Email))
	b.ahead.Store(int64(11 * time.Minute))
	refused(with, callback, "too late")
	b.ahead.Store(0)

	with = newBrowser(t)
	callback = b.authorizedAt(t, op, with, newPerson(ada.Email))
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/oidc", "").status)
	refused(with, callback, "the tenant has no issuer any longer")
}

// claimingIssuer serves a discovery document of the test's choice.
func claimingIssuer(t *testing.T, document func(issuer string) string) string {
	t.Helper()
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(document(server.URL)))
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func discovery(issuer, authorize, token, keys string) string {
	text, _ := json.Marshal(map[string]any{
		"issuer": issuer, "authorization_endpoint": authorize, "token_endpoint": token, "jwks_uri": keys,
		"id_token_signing_alg_values_supported": []string{"RS256"},
	})
	return string(text)
}

func TestAnIssuerIsValidatedWhenItIsSaved(t *testing.T) {
	t.Parallel()
	b := setup(t)
	endless := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return
			}
		}
	}))
	t.Cleanup(endless.Close)
	moved := httptest.NewServer(http.RedirectHandler("http://169.254.169.254/", http.StatusFound))
	t.Cleanup(moved.Close)
	for name, issuer := range map[string]string{
		"not a URL":        "issuer",
		"plain http":       "http://issuer.example.com",
		"metadata service": "https://169.254.169.254",
		"private":          "https://10.0.0.1",
		"nobody there":     "http://127.0.0.1:1",
		"a redirect":       moved.URL,
		"endless":          endless.URL,
		"another's name": claimingIssuer(t, func(string) string {
			return discovery("https://a.example.com", "https://a.example.com", "https://a.example.com", "https://a.example.com")
		}),
		"private tokens": claimingIssuer(t, func(i string) string { return discovery(i, i, "https://10.0.0.1/token", i) }),
		"private keys":   claimingIssuer(t, func(i string) string { return discovery(i, i, i, "http://192.168.0.1/keys") }),
		"a script":       claimingIssuer(t, func(i string) string { return discovery(i, "javascript:alert(1)", i, i) }),
		"no JSON":        claimingIssuer(t, func(string) string { return "<html>" }),
	} {
		body := fmt.Sprintf(`{"issuer":%q,"client_id":"x","client_secret":"CANARY"}`, issuer)
		p := b.send(t, "PUT", "/v1/tenant/oidc", body).problem(t, 422, "invalid")
		require.Equal(t, "body.issuer", p.Errors[0].Location, name)
	}
	b.send(t, "GET", "/v1/tenant/oidc", "").problem(t, 404, "not_found")
	b.send(t, "GET", "/v1/auth/oidc/"+b.tenant.ID.String()+"/login", "").problem(t, 404, "not_found")

	strict := b.replica(t, func(d *api.Deps) { d.Guard = providers.Guard{} })
	op := newIssuer(t)
	strict.send(t, "PUT", "/v1/tenant/oidc", fmt.Sprintf(`{"issuer":%q,"client_id":"x"}`, op.Issuer())).problem(t, 422, "invalid")
}

func TestAnIssuersSecretIsSealedAndAnIssuerThatIsAwayIsUnavailable(t *testing.T) {
	t.Parallel()
	b, op := setup(t), newIssuer(t)
	b.saveIssuer(t, op)
	var sealed []byte
	err := dbtest.Conn(t).QueryRow(t.Context(), `select client_secret from oidc_issuers where tenant_id = $1`, b.tenant.ID).Scan(&sealed)
	require.NoError(t, err)
	require.NotContains(t, string(sealed), op.ClientSecret)
	require.NotContains(t, b.send(t, "GET", "/v1/tenant/oidc", "").body, op.ClientSecret)
	require.NoError(t, op.Shutdown())
	b.send(t, "GET", "/v1/auth/oidc/"+b.tenant.ID.String()+"/login", "").problem(t, 503, "unavailable")
}
