package api_test

import (
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
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

// person is a user of the issuer. change modifies the claims of the user's ID token.
type person struct {
	mockoidc.MockUser
	change func(*mockoidc.IDTokenClaims)
}

func (p *person) Claims(scope []string, claims *mockoidc.IDTokenClaims) (jwt.Claims, error) {
	claims.NotBefore = nil // the issuer's clock runs, the server's clock stands still
	if p.change != nil {
		p.change(claims)
	}
	return p.MockUser.Claims(scope, claims)
}

// newPerson returns an account at the issuer.
func newPerson(subject string) *person {
	return &person{MockUser: mockoidc.MockUser{Subject: subject}}
}

// browser keeps cookies, and returns redirects instead of following them.
type browser struct{ *http.Client }

// newBrowser returns a browser without cookies.
func newBrowser(t *testing.T) browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return browser{&http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// wayOn matches the link on a page of the sign-in.
var wayOn = regexp.MustCompile(`<a href="([^"]+)"`)

// open returns the status of a page and the address of the page's link. If the page has no link, open returns the
// address of the redirect.
func (b browser) open(t *testing.T, address string) (status int, onTo string) {
	t.Helper()
	response, err := b.Get(address)
	require.NoError(t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	if link := wayOn.FindSubmatch(text); link != nil {
		return response.StatusCode, html.UnescapeString(string(link[1]))
	}
	return response.StatusCode, response.Header.Get("Location")
}

// sessionOf returns the session of the browser.
func (b *bundle) sessionOf(t *testing.T, with browser) (session struct {
	Tenant struct{ ID string }
	Member struct{ ID, Role, Email string }
},
) {
	t.Helper()
	response, err := with.Get(b.url + "/v1/auth/session")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, 200, response.StatusCode)
	require.NoError(t, json.NewDecoder(response.Body).Decode(&session))
	return session
}

// saveIssuer saves op as the issuer of the tenant.
func (b *bundle) saveIssuer(t *testing.T, op *mockoidc.MockOIDC) {
	t.Helper()
	body := fmt.Sprintf(`{"issuer":%q,"client_id":%q,"client_secret":%q}`, op.Issuer(), op.ClientID, op.ClientSecret)
	a := b.send(t, "PUT", "/v1/tenant/oidc", body)
	require.Equal(t, 200, a.status, a.body)
	require.NotContains(t, a.body, op.ClientSecret)
	require.Contains(t, a.body, b.url+"/v1/auth/oidc/callback")
}

// newIssuer starts an OIDC issuer.
func newIssuer(t *testing.T) *mockoidc.MockOIDC {
	t.Helper()
	op, err := mockoidc.Run()
	require.NoError(t, err)
	t.Cleanup(func() { _ = op.Shutdown() })
	return op
}

// authorizedAt signs a person in at the issuer and returns the callback URL.
func (b *bundle) authorizedAt(t *testing.T, op *mockoidc.MockOIDC, with browser, as *person) (callback string) {
	t.Helper()
	status, authorize := with.open(t, b.url+"/v1/auth/oidc/"+b.tenant.ID.String()+"/login")
	require.Equal(t, 200, status, "a link of ours leads nowhere by itself")
	return b.authorize(t, op, with, as, authorize)
}

// authorize signs a person in at the issuer's authorization URL and returns the callback URL.
func (b *bundle) authorize(t *testing.T, op *mockoidc.MockOIDC, with browser, as *person, address string) (callback string) {
	t.Helper()
	op.QueueUser(as)
	require.True(t, strings.HasPrefix(address, op.AuthorizationEndpoint()+"?"), address)
	query, err := url.Parse(address)
	require.NoError(t, err)
	require.Equal(t, "S256", query.Query().Get("code_challenge_method"))
	require.NotEmpty(t, query.Query().Get("code_challenge"))
	require.NotEmpty(t, query.Query().Get("nonce"))
	require.Equal(t, b.url+"/v1/auth/oidc/callback", query.Query().Get("redirect_uri"))
	status, callback := with.open(t, address)
	require.Equal(t, http.StatusFound, status)
	require.True(t, strings.HasPrefix(callback, b.url+"/v1/auth/oidc/callback?"), callback)
	return callback
}

// acceptAt accepts an invitation with an account at the issuer.
func (b *bundle) acceptAt(t *testing.T, op *mockoidc.MockOIDC, token string, as *person) (with browser, status int) {
	t.Helper()
	with = newBrowser(t)
	response, err := with.Post(b.url+"/v1/invitations/accept-at-issuer", "application/json", strings.NewReader(fmt.Sprintf(`{"token":%q}`, token)))
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, 200, response.StatusCode)
	var began struct{ Location string }
	require.NoError(t, json.NewDecoder(response.Body).Decode(&began))
	status, _ = with.open(t, b.authorize(t, op, with, as, began.Location))
	return with, status
}

// bound creates a member with an account at the issuer, and returns the member's id.
func (b *bundle) bound(t *testing.T, op *mockoidc.MockOIDC, role string, as *person) (id string) {
	t.Helper()
	with, status := b.acceptAt(t, op, b.invite(t, email("at-issuer"), role).Token, as)
	require.Equal(t, http.StatusFound, status)
	return b.sessionOf(t, with).Member.ID
}

func TestAMemberSignsInAtTheTenantsIssuer(t *testing.T) {
	t.Parallel()
	b, op := setup(t), newIssuer(t)
	b.saveIssuer(t, op)
	address := email("ada")
	invited := b.invite(t, address, "billing")
	with, status := b.acceptAt(t, op, invited.Token, newPerson("ada at the issuer"))
	require.Equal(t, http.StatusFound, status)
	ada := b.sessionOf(t, with)
	require.Equal(t, []string{b.tenant.ID.String(), "billing", address}, []string{ada.Tenant.ID, ada.Member.Role, ada.Member.Email})
	require.Contains(t, b.send(t, "GET", "/v1/tenant/members", "").body, `"has_password":false`)
	b.accept(t, invited.Token, password).problem(t, 404, "not_found")

	with = newBrowser(t)
	callback := b.authorizedAt(t, op, with, newPerson("ada at the issuer"))
	status, location := with.open(t, callback)
	require.Equal(t, http.StatusFound, status)
	require.Equal(t, b.url+"/", location)
	require.Equal(t, ada, b.sessionOf(t, with))
	status, _ = with.open(t, callback)
	require.Equal(t, 401, status, "a way back is used once")
}

func TestOIDCLoginPageNamesIssuerAndDoesNotRedirect(t *testing.T) {
	t.Parallel()
	b, op := setup(t), newIssuer(t)
	b.saveIssuer(t, op)
	a := b.send(t, "GET", "/v1/auth/oidc/"+b.tenant.ID.String()+"/login", "", "Authorization: ")
	require.Equal(t, 200, a.status)
	require.Empty(t, a.header.Get("Location"))
	require.Equal(t, "text/html; charset=utf-8", a.header.Get("Content-Type"))
	require.Contains(t, a.header.Get("Content-Security-Policy"), "default-src 'none'")
	require.Contains(t, a.header.Get("Content-Security-Policy"), "frame-ancestors 'none'")
	issuer, err := url.Parse(op.Issuer())
	require.NoError(t, err)
	require.Contains(t, a.body, "<strong>"+issuer.Host+"</strong>")
	b.send(t, "PUT", "/v1/tenant/oidc", fmt.Sprintf(`{"issuer":%q,"client_id":"x","redirect_base":"https://elsewhere.example.com"}`, op.Issuer())).problem(t, 422, "invalid")

	https := b.replica(t, func(d *api.Deps) { d.BaseURL = "https://odometer.example.com" })
	cookie, err := http.ParseSetCookie(https.send(t, "GET", "/v1/auth/oidc/"+b.tenant.ID.String()+"/login", "").header.Get("Set-Cookie"))
	require.NoError(t, err)
	require.Equal(t, "__Host-odometer_sign_in", cookie.Name)
	require.True(t, cookie.Secure && cookie.HttpOnly)
	require.Equal(t, http.SameSiteLaxMode, cookie.SameSite)
	require.Equal(t, 600, cookie.MaxAge)
	var row string
	require.NoError(t, dbtest.Conn(t).QueryRow(t.Context(), `select string_agg(o::text, '') from oidc_sign_ins o where tenant_id = $1`, b.tenant.ID).Scan(&row))
	require.NotContains(t, row, cookie.Value, "whoever reads the database finishes nobody's sign-in")
}

// TestIssuerSignsInOnlyItsOwnAccounts simulates an attacker that has the key of an admin, and saves an
// issuer with claims of the attacker's choice. This issuer must not sign in members of another issuer.
func TestIssuerSignsInOnlyItsOwnAccounts(t *testing.T) {
	t.Parallel()
	b, op, evil := setup(t), newIssuer(t), newIssuer(t)
	b.saveIssuer(t, op)
	owner := b.bound(t, op, "owner", newPerson("the owner"))
	other := b.beside(t)
	other.saveIssuer(t, op)
	theirs := newPerson("the owner")
	with := newBrowser(t)
	status, _ := with.open(t, other.authorizedAt(t, op, with, theirs))
	require.Equal(t, 401, status, "an account is somebody's in one tenant, even at the same issuer")

	b.saveIssuer(t, evil)
	posing := newPerson("the owner")
	posing.Email, posing.EmailVerified = b.memberEmail(t, owner), true
	with = newBrowser(t)
	status, _ = with.open(t, b.authorizedAt(t, evil, with, posing))
	require.Equal(t, 401, status, "another issuer's account of the same name, and e-mail, is another's")
	b.send(t, "POST", "/v1/tenant/members/"+owner+"/reset", "").problem(t, 403, "forbidden")
	b.send(t, "POST", "/v1/tenant/members", `{"email":"second-owner@example.com","role":"owner"}`).problem(t, 409, "conflict")
	mallory := b.bound(t, evil, "admin", posing)
	require.NotEqual(t, owner, mallory)

	b.saveIssuer(t, op)
	with = newBrowser(t)
	status, _ = with.open(t, b.authorizedAt(t, op, with, newPerson("the owner")))
	require.Equal(t, http.StatusFound, status)
	require.Equal(t, owner, b.sessionOf(t, with).Member.ID)
}

// memberEmail returns the stored email address of a member.
func (b *bundle) memberEmail(t *testing.T, id string) (email string) {
	t.Helper()
	require.NoError(t, dbtest.Conn(t).QueryRow(t.Context(), `select email from members where 'member_' || id = $1`, id).Scan(&email))
	return email
}

func TestIssuerAccountBelongsToOneMemberAndInvitationReplacesIt(t *testing.T) {
	t.Parallel()
	b, op := setup(t), newIssuer(t)
	b.saveIssuer(t, op)
	ada := b.member(t, b.tenant.ID, email("ada"), metering.RoleViewer)
	b.bound(t, op, "viewer", newPerson("bob"))
	reset := func() string {
		return b.send(t, "POST", "/v1/tenant/members/"+ada.ID.String()+"/reset", "").invitation(t).Token
	}
	_, status := b.acceptAt(t, op, reset(), newPerson("bob"))
	require.Equal(t, 409, status)
	for _, account := range []string{"ada", "ada's second"} {
		with, status := b.acceptAt(t, op, reset(), newPerson(account))
		require.Equal(t, http.StatusFound, status)
		require.Equal(t, ada.ID.String(), b.sessionOf(t, with).Member.ID)
	}
	require.Equal(t, ada.ID.String(), b.logIn(t, ada.Email).Member.Id, "the password stays")
	for account, want := range map[string]int{"ada": 401, "ada's second": 302} {
		with := newBrowser(t)
		status, _ := with.open(t, b.authorizedAt(t, op, with, newPerson(account)))
		require.Equal(t, want, status, account)
	}
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/members/"+ada.ID.String(), "").status)
	with := newBrowser(t)
	status, _ = with.open(t, b.authorizedAt(t, op, with, newPerson("ada's second")))
	require.Equal(t, 401, status)
	require.NotEqual(t, ada.ID.String(), b.bound(t, op, "viewer", newPerson("ada's second")))
}

func TestIDTokenClaimsAreCheckedBeforeSignIn(t *testing.T) {
	t.Parallel()
	b, op := setup(t), newIssuer(t)
	b.saveIssuer(t, op)
	ada := b.bound(t, op, "viewer", newPerson("ada"))
	removed := b.bound(t, op, "viewer", newPerson("removed"))
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/members/"+removed, "").status)
	b.ahead.Store(int64(time.Minute + time.Second)) // sign-ins are limited per minute
	known := b.member(t, b.tenant.ID, email("known"), metering.RoleViewer)
	byEmail := newPerson("somebody")
	byEmail.Email, byEmail.EmailVerified = known.Email, true
	claiming := func(change func(*mockoidc.IDTokenClaims)) *person {
		p := newPerson("ada")
		p.change = change
		return p
	}
	for name, as := range map[string]*person{
		"a stranger":            newPerson("nobody"),
		"a removed member":      newPerson("removed"),
		"a member's e-mail":     byEmail,
		"a member's e-mail too": newPerson(known.Email),
		"no subject":            newPerson(""),
		"another case":          newPerson("Ada"),
		"a NUL":                 newPerson("ada\x00"),
		"a long name":           newPerson(strings.Repeat("ada", 86)),
		"another nonce":         claiming(func(c *mockoidc.IDTokenClaims) { c.Nonce = "another" }),
		"no nonce":              claiming(func(c *mockoidc.IDTokenClaims) { c.Nonce = "" }),
		"another issuer":        claiming(func(c *mockoidc.IDTokenClaims) { c.Issuer = "https://accounts.example.com" }),
		"another audience":      claiming(func(c *mockoidc.IDTokenClaims) { c.Audience = jwt.ClaimStrings{"another"} }),
		"expired": claiming(func(c *mockoidc.IDTokenClaims) {
			c.ExpiresAt = jwt.NewNumericDate(b.now().Add(-time.Minute))
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
	status, _ := with.open(t, b.authorizedAt(t, op, with, newPerson("ada")))
	require.Equal(t, http.StatusFound, status, "and one who is a member signs in")
	require.Equal(t, ada, b.sessionOf(t, with).Member.ID)
}

func TestOIDCCallbackWorksOnlyInBrowserThatStartedSignIn(t *testing.T) {
	t.Parallel()
	b, op := setup(t), newIssuer(t)
	op.AccessTTL = time.Hour // longer than a sign-in may take
	b.saveIssuer(t, op)
	b.bound(t, op, "viewer", newPerson("ada"))
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
	callback := b.authorizedAt(t, op, with, newPerson("ada"))
	refused(newBrowser(t), callback, "another browser")
	refused(with, changed(callback, "state", "another"), "another state")
	refused(with, changed(callback, "iss", "https://accounts.example.com"), "another issuer's way back")
	refused(with, callback, "used up")

	with = newBrowser(t)
	refused(with, changed(b.authorizedAt(t, op, with, newPerson("ada")), "code", "another"), "another code")
	with = newBrowser(t)
	refused(with, changed(b.authorizedAt(t, op, with, newPerson("ada")), "error", "access_denied"), "the issuer said no")

	with = newBrowser(t)
	callback = b.authorizedAt(t, op, with, newPerson("ada"))
	b.ahead.Store(int64(11 * time.Minute))
	refused(with, callback, "too late")
	b.ahead.Store(0)

	with = newBrowser(t)
	callback = b.authorizedAt(t, op, with, newPerson("ada"))
	require.Equal(t, 200, b.send(t, "DELETE", "/v1/tenant/oidc", "").status)
	refused(with, callback, "the tenant has no issuer any longer")
}

// asPerson opens an address with the Accept header of a browser.
func (b browser) asPerson(t *testing.T, address string) answer {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	require.NoError(t, err)
	request.Header.Set("Accept", "text/html,application/xhtml+xml,*/*;q=0.8")
	response, err := b.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	page, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return answer{response.StatusCode, response.Header, string(page)}
}

func TestFailedOIDCSignInShowsReasonAndRetryLink(t *testing.T) {
	t.Parallel()
	b, op := setup(t), newIssuer(t)
	b.saveIssuer(t, op)
	with := newBrowser(t)
	stranger := b.authorizedAt(t, op, with, newPerson("<b>nobody</b>"))
	withoutIssuer := b.url + "/v1/auth/oidc/" + b.beside(t).tenant.ID.String() + "/login"
	for _, vain := range []struct {
		address, why string
		status       int
	}{
		{stranger, "no member has this account", 401},
		{withoutIssuer, "the tenant has no OIDC issuer", 404},
		{b.url + "/v1/auth/oidc/%3Cb%3E/login", "there is no such tenant", 404},
	} {
		a := with.asPerson(t, vain.address)
		require.Equal(t, vain.status, a.status, vain.why)
		require.Equal(t, "text/html; charset=utf-8", a.header.Get("Content-Type"))
		require.Contains(t, a.header.Get("Content-Security-Policy"), "default-src 'none'")
		require.Empty(t, a.header.Get("Set-Cookie"))
		require.Contains(t, a.body, vain.why)
		require.Contains(t, a.body, a.header.Get("X-Request-Id"))
		require.Contains(t, a.body, `<a href="/sign-in/issuer">Begin again</a>`)
		require.NotContains(t, a.body, "<b>")
	}
	b.send(t, "GET", strings.TrimPrefix(withoutIssuer, b.url), "").problem(t, 404, "not_found")
}

// TestOIDCLoginLinkAcceptsAdditionalParameters checks a link with additional query parameters, because
// programs that mail a link add such parameters.
func TestOIDCLoginLinkAcceptsAdditionalParameters(t *testing.T) {
	t.Parallel()
	b, op := setup(t), newIssuer(t)
	b.saveIssuer(t, op)
	login := b.url + "/v1/auth/oidc/" + b.tenant.ID.String() + "/login?utm_source=mail&utm_source=news&%zz"
	a := newBrowser(t).asPerson(t, login)
	require.Equal(t, http.StatusOK, a.status, a.body)
	require.Contains(t, a.body, "Continue to")
	require.NotContains(t, a.body, "utm_source")
}

func TestUsedOrExpiredOIDCCallbackRedirectsToSignIn(t *testing.T) {
	t.Parallel()
	b, op := setup(t), newIssuer(t)
	b.saveIssuer(t, op)
	b.bound(t, op, "viewer", newPerson("ada"))
	with := newBrowser(t)
	bookmarked := b.authorizedAt(t, op, with, newPerson("ada"))
	status, _ := with.open(t, bookmarked)
	require.Equal(t, http.StatusFound, status)

	over := func(address string) {
		t.Helper()
		a := with.asPerson(t, address)
		require.Equal(t, http.StatusFound, a.status)
		require.Equal(t, b.url+"/sign-in?problem=over", a.header.Get("Location"), "nothing of what came is in it")
		require.Empty(t, a.header.Get("Set-Cookie"))
		require.Empty(t, a.body)
	}
	over(bookmarked)
	b.send(t, "GET", strings.TrimPrefix(bookmarked, b.url), "").problem(t, 401, "unauthorized")
	for query, status := range map[string]int{
		"": 401, "?state=x&error=%3Cb%3E": 401, "?state=%00": 401, "?state=%zz": 401,
		"?state=" + strings.Repeat("x", 256): 422, "?state=x&code=" + strings.Repeat("x", 4097): 422,
	} {
		over(b.url + "/v1/auth/oidc/callback" + query)
		require.Equal(t, status, b.send(t, "GET", "/v1/auth/oidc/callback"+query, "").status, "a program is told why")
	}

	late := b.authorizedAt(t, op, with, newPerson("ada"))
	b.ahead.Store(int64(11 * time.Minute))
	over(late)
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

// discovery returns the discovery document of an issuer.
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
	require.JSONEq(t, fmt.Sprintf(`{"configured":false,"issuer":"","client_id":"","has_client_secret":false,"updated_at":null,
		"redirect_uri":"%[1]s/v1/auth/oidc/callback","login_url":"%[1]s/v1/auth/oidc/%[2]s/login"}`, b.url, b.tenant.ID), b.send(t, "GET", "/v1/tenant/oidc", "").body)
	b.send(t, "DELETE", "/v1/tenant/oidc", "").problem(t, 404, "not_found")
	b.send(t, "GET", "/v1/auth/oidc/"+b.tenant.ID.String()+"/login", "").problem(t, 404, "not_found")

	strict := b.replica(t, func(d *api.Deps) { d.Guard = providers.Guard{} })
	op := newIssuer(t)
	strict.send(t, "PUT", "/v1/tenant/oidc", fmt.Sprintf(`{"issuer":%q,"client_id":"x"}`, op.Issuer())).problem(t, 422, "invalid")
}

func TestIssuerSecretIsSealedAndUnreachableIssuerReturns503(t *testing.T) {
	t.Parallel()
	b, op := setup(t), newIssuer(t)
	b.saveIssuer(t, op)
	var sealed []byte
	err := dbtest.Conn(t).QueryRow(t.Context(), `select client_secret from oidc_issuers where tenant_id = $1`, b.tenant.ID).Scan(&sealed)
	require.NoError(t, err)
	require.NotContains(t, string(sealed), op.ClientSecret)
	shown := b.send(t, "GET", "/v1/tenant/oidc", "").body
	require.Contains(t, shown, `"configured":true`)
	require.NotContains(t, shown, op.ClientSecret)
	require.NoError(t, op.Shutdown())
	b.send(t, "GET", "/v1/auth/oidc/"+b.tenant.ID.String()+"/login", "").problem(t, 503, "unavailable")
}

func TestUnresponsiveIssuerDoesNotBlockOtherTenants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	held, released := make(chan struct{}), make(chan struct{})
	var silent atomic.Bool
	var asked atomic.Int32
	issuer := claimingIssuer(t, func(i string) string {
		if silent.Load() {
			asked.Add(1)
			held <- struct{}{}
			<-released
		}
		return discovery(i, i, i, i)
	})
	require.Equal(t, 200, b.send(t, "PUT", "/v1/tenant/oidc", fmt.Sprintf(`{"issuer":%q,"client_id":"x"}`, issuer)).status)
	silent.Store(true)
	other, op := b.beside(t), newIssuer(t)
	other.saveIssuer(t, op)

	login := func(b *bundle) string { return b.url + "/v1/auth/oidc/" + b.tenant.ID.String() + "/login" }
	var waiting sync.WaitGroup
	for range 16 {
		waiting.Go(func() {
			if response, err := http.Get(login(b)); err == nil {
				_ = response.Body.Close()
			}
		})
		<-held
	}
	b.send(t, "GET", "/v1/auth/oidc/"+b.tenant.ID.String()+"/login", "").problem(t, 503, "unavailable")
	require.EqualValues(t, 16, asked.Load(), "the issuer is not asked once more")
	status, onTo := newBrowser(t).open(t, login(other))
	require.Equal(t, 200, status)
	require.Contains(t, onTo, op.AuthorizationEndpoint())

	silent.Store(false)
	close(released)
	waiting.Wait()
	require.Equal(t, 200, b.send(t, "GET", "/v1/auth/oidc/"+b.tenant.ID.String()+"/login", "").status)
}
