package api

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/db/access"
	"github.com/odometer-metering/odometer/metering"
)

const (
	sessionLength = 12 * time.Hour
	sessionCookie = "odometer_session"
	csrfHeader    = "X-CSRF-Token"
)

// Maximum sign-in attempts per minute, for each address and for each account at an address. Every attempt is
// counted before its password is checked, so that parallel guesses have the same limit as sequential guesses.
// Attempts from one address never lock an account at another address.
const (
	signInsByAddress = 30
	signInsByAccount = 10
)

// people holds the state behind the sign-in of members: sessions, passwords, invitations and issuers.
type people struct {
	sessions    *coalescer[access.SessionName, *access.SignedIn]
	tokens      *tokens
	passwords   *hashing
	invitations invitationTokens
	secrets     signInSecrets
	signIns     limiter
	issuers     *issuers
	csrfKey     []byte
}

func newPeople(deps Deps, signIns limiter) (p *people, err error) {
	p = &people{
		sessions: &coalescer[access.SessionName, *access.SignedIn]{run: readCredentials(deps.Authentication.Sessions.Find), timeout: credentialTimeout},
		signIns:  signIns,
		issuers:  newIssuers(deps.Guard.Client(issuerTimeout)),
	}
	passwords, err := NewPasswords(deps.Secret)
	if err != nil {
		return nil, err
	}
	if p.passwords, err = newHashing(passwords); err != nil {
		return nil, err
	}
	if p.secrets, err = newSignInSecrets(deps.Secret); err != nil {
		return nil, err
	}
	if p.invitations, err = newInvitationTokens(deps.Secret); err != nil {
		return nil, err
	}
	if p.tokens, err = newTokens(deps.Secret); err != nil {
		return nil, err
	}
	if p.csrfKey, err = derive(deps.Secret, "csrf-tokens"); err != nil {
		return nil, err
	}
	return p, nil
}

type signedIn struct {
	Token     string          `json:"token,omitempty" doc:"Token for Authorization: Bearer. Browsers also receive the token as a cookie"`
	ExpiresAt *time.Time      `json:"expires_at,omitempty"`
	CSRFToken string          `json:"csrf_token,omitempty" doc:"Value for X-CSRF-Token. Required with the cookie for every method except GET"`
	Member    *member         `json:"member,omitempty"`
	Tenants   []sessionTenant `json:"tenants,omitempty" doc:"Tenants of the person, if there are several. Sign in again with the tenant_id of one of them"`
}

type signedInOutput struct {
	SetCookie string `header:"Set-Cookie"`
	Body      signedIn
}

type logInInput struct {
	Body struct {
		Email    string `json:"email" maxLength:"254"`
		Password string `json:"password" maxLength:"256"`
		TenantID string `json:"tenant_id,omitempty" maxLength:"32" example:"ten_42" doc:"Tenant to sign in to. Required for a member of several tenants"`
	}
}

func (s *server) registerSessions() {
	huma.Register(s.api, post("log-in", "/v1/auth/login", Public, "Sign in with e-mail and password",
		"If the e-mail belongs to several tenants and `tenant_id` is omitted, the response lists the tenants and contains no token."), s.logIn)
	huma.Register(s.api, post("log-out", "/v1/auth/logout", OwnSession, "Sign out",
		"Ends this session. The member's other sessions continue."), s.logOut)
	huma.Register(s.api, post("log-out-everywhere", "/v1/auth/logout-all", OwnSession, "Sign out everywhere",
		"Ends all your sessions in this tenant, including this one."), s.logOutEverywhere)
	huma.Register(s.api, get("get-session", "/v1/auth/session", OwnSession, "Get the current session",
		"Returns the tenant, the caller and the caller's permissions."), s.getSession)
	huma.Register(s.api, put("set-password", "/v1/auth/password", OwnSession, "Change your password",
		"Needs the current password. Returns 422 if the new password is easy to guess, and 409 if you sign in at the tenant's OIDC issuer."), s.setPassword)
}

func (s *server) logIn(ctx context.Context, in *logInInput) (*signedInOutput, error) {
	if err := s.countSignIn(ctx, in.Body.Email); err != nil {
		return nil, err
	}
	address, account := s.addressOf(ctx), s.accountAt(ctx, in.Body.Email)
	hash, err := s.passwords.hashAt(ctx, address, account, in.Body.Email, in.Body.Password)
	if err != nil {
		return nil, err
	}
	memberships, err := s.memberships(ctx, in.Body.Email, hash, in.Body.TenantID)
	if err != nil {
		return nil, err
	}
	if len(memberships) == 0 {
		s.auditRefusedSignIn(ctx, in.Body.Email)
		return nil, errSignIn
	}
	s.passwords.succeeded(address, account)
	if len(memberships) == 1 {
		return s.signedIn(ctx, memberships[0].Member)
	}
	out := new(signedInOutput)
	for _, m := range memberships {
		out.Body.Tenants = append(out.Body.Tenants, showSessionTenant(m.Tenant))
	}
	return out, nil
}

// signedIn starts a session for the member and returns its token, its CSRF token and its cookie.
func (s *server) signedIn(ctx context.Context, m metering.Member) (*signedInOutput, error) {
	session, token, err := s.beginSession(ctx, m)
	if err != nil {
		return nil, err
	}
	body := signedIn{Token: token, ExpiresAt: new(session.ExpiresAt.UTC()), CSRFToken: s.csrfToken(session.ID), Member: new(showMember(m))}
	return &signedInOutput{s.sessionCookie(token, sessionLength), body}, nil
}

// errSignIn is the error of a sign-in with a wrong e-mail or password. The error does not name the wrong
// field, so that the response does not reveal which e-mails are members of which tenants.
var errSignIn = metering.Errorf(metering.CodeUnauthorized, "the e-mail or password is wrong")

// countSignIn counts a sign-in attempt against the limit of the client's address and against the limit of the
// account at that address. Attempts for unknown accounts count too.
func (s *server) countSignIn(ctx context.Context, email string) error {
	if err := s.countSignInFrom(ctx); err != nil {
		return err
	}
	return s.countSignInAs(ctx, email)
}

// countSignInAs counts a sign-in attempt against the limit of the account at the client's address.
func (s *server) countSignInAs(ctx context.Context, email string) error {
	if a := s.signIns.take(ctx, "sign-ins:account:"+s.accountAt(ctx, email), signInsByAccount); !a.allowed {
		return tooMany(a, "too many attempts to sign in to this account from this address")
	}
	return nil
}

// accountAt returns a hash that identifies an e-mail together with the client's address.
func (s *server) accountAt(ctx context.Context, email string) string {
	account := hashName(s.addressOf(ctx), metering.FoldEmail(email))
	return hex.EncodeToString(account[:])
}

func (s *server) addressOf(ctx context.Context) string {
	return s.failures.addressOf(exchangeOf(ctx).request)
}

// countSignInFrom counts a sign-in attempt against the limit of the client's address.
func (s *server) countSignInFrom(ctx context.Context) error {
	if a := s.signIns.take(ctx, "sign-ins:address:"+s.addressOf(ctx), signInsByAddress); !a.allowed {
		return tooMany(a, "too many attempts to sign in from this address")
	}
	return nil
}

// memberships returns the memberships of the person with this e-mail and password. If tenant is not empty,
// only that tenant is searched.
func (s *server) memberships(ctx context.Context, email string, passwordHash []byte, tenant string) ([]metering.Membership, error) {
	var id metering.TenantID
	if tenant != "" {
		var ok bool
		if id, ok = metering.ParseTenantID(tenant); !ok {
			return nil, nil
		}
	}
	if !isEmail(email) {
		return nil, nil
	}
	return s.Store.People.Memberships(ctx, id, email, passwordHash)
}

// isEmail reports whether text is a valid e-mail. Other texts are not looked up, because they can
// contain bytes that the database rejects, such as NUL.
func isEmail(text string) bool { return metering.ValidEmail("body.email", text) == nil }

// beginSession starts a session for the member and returns the session and its token. If the request has a
// session cookie, beginSession ends that session, because the new cookie replaces the old one.
func (s *server) beginSession(ctx context.Context, m metering.Member) (metering.Session, string, error) {
	now := s.Now()
	session, err := s.Store.Sessions.Begin(ctx, m, s.replacedSession(ctx, now), now.Add(sessionLength), now)
	if err != nil {
		return session, "", err
	}
	token, err := s.tokens.make(session)
	return session, token, err
}

// replacedSession returns the session in the request's session cookie, or nil. Ending this session needs no CSRF
// token, because the response replaces the cookie anyway.
func (s *server) replacedSession(ctx context.Context, now time.Time) *access.SessionName {
	cookie, err := exchangeOf(ctx).request.Cookie(s.cookieName(sessionCookie))
	if err != nil {
		return nil
	}
	name, ok := s.tokens.read(cookie.Value, now)
	if !ok {
		return nil
	}
	return &name
}

// sessionCookie returns the Set-Cookie value of the session cookie. An empty token deletes the cookie.
// SameSite is Strict, so that requests from other sites never carry the cookie.
func (s *server) sessionCookie(token string, lasts time.Duration) string {
	return s.cookie(sessionCookie, token, lasts, http.SameSiteStrictMode)
}

// cookie returns the Set-Cookie value of a cookie that scripts cannot read. If BaseURL is https, the name has
// the prefix __Host-, so that only this host can set the cookie, over https (RFC 6265bis, 4.1.3.2).
func (s *server) cookie(name, value string, lasts time.Duration, site http.SameSite) string {
	c := http.Cookie{
		Name: s.cookieName(name), Value: value, Path: "/", MaxAge: int(lasts.Seconds()),
		HttpOnly: true, Secure: s.secure(), SameSite: site,
	}
	if value == "" {
		c.MaxAge = -1
	}
	return c.String()
}

func (s *server) cookieName(name string) string {
	if s.secure() {
		return "__Host-" + name
	}
	return name
}

// secure reports whether browsers reach the API over https.
func (s *server) secure() bool { return strings.HasPrefix(s.BaseURL, "https://") }

// csrfToken returns the CSRF token of a session. Other sites do not have the token, because browsers do not
// let them read responses of this service.
func (s *server) csrfToken(session uuid.UUID) string {
	mac := hmac.New(sha256.New, s.csrfKey)
	mac.Write(session[:])
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil))
}

// byCookie authenticates the member of the session cookie. Browsers also send cookies with requests that
// other sites cause. Every method except GET and HEAD therefore needs the session's CSRF token.
func (s *server) byCookie(ctx huma.Context) (Principal, error) {
	cookie, err := huma.ReadCookie(ctx, s.cookieName(sessionCookie))
	if err != nil {
		return Principal{}, errUnauthorized
	}
	who, err := s.byToken(ctx.Context(), cookie.Value)
	if err != nil || ctx.Method() == http.MethodGet || ctx.Method() == http.MethodHead {
		return who, err
	}
	if !hmac.Equal([]byte(ctx.Header(csrfHeader)), []byte(s.csrfToken(who.Session.ID))) {
		return who, metering.Errorf(metering.CodeForbidden, "with a cookie, %s must be the session's csrf_token", csrfHeader)
	}
	return who, nil
}

// byToken authenticates the member of a session token. The session must not have ended or expired.
func (s *server) byToken(ctx context.Context, token string) (Principal, error) {
	now := s.Now()
	name, ok := s.tokens.read(token, now)
	if !ok {
		return Principal{}, errUnauthorized
	}
	found, err := s.sessions.find(ctx, name)
	if err != nil {
		return Principal{}, err
	}
	if found == nil || !found.Session.Live(now) {
		return Principal{}, errUnauthorized
	}
	return Principal{
		Tenant: found.Tenant, Actor: metering.Actor(found.Member.ID.String()), Role: found.Member.Role,
		Member: found.Member, Session: found.Session,
	}, nil
}

// memberOf returns the calling member, or an error if the caller is an API key or an HMAC secret.
func memberOf(ctx context.Context) (Principal, error) {
	who := principalOf(ctx)
	if who.Role == "" {
		return who, metering.Errorf(metering.CodeForbidden, "this operation needs the session of a signed-in member")
	}
	return who, nil
}

type logOutOutput struct {
	SetCookie string `header:"Set-Cookie"`
	Body      struct {
		Ended bool `json:"ended"`
	}
}

// loggedOut returns a response that deletes the session cookie.
func (s *server) loggedOut() *logOutOutput {
	out := &logOutOutput{SetCookie: s.sessionCookie("", 0)}
	out.Body.Ended = true
	return out
}

func (s *server) logOut(ctx context.Context, _ *struct{}) (*logOutOutput, error) {
	who, err := memberOf(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Store.Sessions.End(ctx, who.Actor, access.SessionName{Tenant: who.Tenant.ID, Member: who.Member.ID, Session: who.Session.ID}); err != nil {
		return nil, err
	}
	return s.loggedOut(), nil
}

func (s *server) logOutEverywhere(ctx context.Context, _ *struct{}) (*logOutOutput, error) {
	who, err := memberOf(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.Store.Sessions.EndAll(ctx, who.Tenant.ID, who.Actor, who.Member.ID); err != nil {
		return nil, err
	}
	return s.loggedOut(), nil
}

type sessionOutput struct{ Body session }

type session struct {
	Tenant      sessionTenant   `json:"tenant"`
	Permissions []Permission    `json:"permissions" doc:"Permissions of the caller, as in x-permission of the operations"`
	Scope       *metering.Scope `json:"scope,omitempty" doc:"Scope of an API key or HMAC secret"`
	Member      *member         `json:"member,omitempty"`
	ExpiresAt   *time.Time      `json:"expires_at,omitempty" doc:"Expiry of the member's session"`
	CSRFToken   *string         `json:"csrf_token,omitempty" doc:"Value for X-CSRF-Token. Only for a member's session"`

	WorkflowsURL string `json:"workflows_url,omitempty" doc:"Page of the Temporal UI that lists the workflow runs. Absent if the URL of the Temporal UI is not configured" example:"https://temporal.example.com/namespaces/default/workflows"`
}

type sessionTenant struct {
	ID       string `json:"id" example:"ten_1"`
	Name     string `json:"name"`
	Timezone string `json:"timezone"`
	Currency string `json:"currency"`
}

func showSessionTenant(t metering.Tenant) sessionTenant {
	return sessionTenant{t.ID.String(), t.Name, t.Timezone, t.Currency}
}

// getSession returns the tenant, the caller and the caller's permissions.
func (s *server) getSession(ctx context.Context, _ *struct{}) (*sessionOutput, error) {
	who := principalOf(ctx)
	body := session{Tenant: showSessionTenant(who.Tenant), Permissions: permissionsOf(who), WorkflowsURL: s.WorkflowsURL}
	if who.Role == "" {
		body.Scope = &who.Scope
		return &sessionOutput{body}, nil
	}
	shown, expires, csrf := showMember(who.Member), who.Session.ExpiresAt.UTC(), s.csrfToken(who.Session.ID)
	body.Member, body.ExpiresAt, body.CSRFToken = &shown, &expires, &csrf
	return &sessionOutput{body}, nil
}

func permissionsOf(who Principal) []Permission {
	all := []Permission{}
	for p := range permissions {
		if p.allows(who) {
			all = append(all, p)
		}
	}
	slices.Sort(all)
	return all
}

type setPasswordInput struct {
	Body struct {
		Current string `json:"current" maxLength:"256"`
		New     string `json:"new" minLength:"12" maxLength:"256" doc:"New password, 12 to 256 characters"`
	}
}

type passwordSetOutput struct {
	Body struct {
		Changed bool `json:"changed" doc:"Always true. The password changes in all the person's tenants, and all other sessions end"`
	}
}

func (s *server) setPassword(ctx context.Context, in *setPasswordInput) (*passwordSetOutput, error) {
	who, err := memberOf(ctx)
	if err != nil {
		return nil, err
	}
	if who.Member.PersonID == nil {
		return nil, metering.Errorf(metering.CodeConflict, "this member signs in at the tenant's OIDC issuer and has no password")
	}
	if err := metering.ValidPassword("body.new", in.Body.New); err != nil {
		return nil, err
	}
	if err := s.countSignIn(ctx, who.Member.Email); err != nil {
		return nil, err
	}
	hashOf := func(password string) ([]byte, error) {
		return s.passwords.hash(ctx, who.Tenant.ID.String(), who.Member.Email, password)
	}
	current, err := hashOf(in.Body.Current)
	if err != nil {
		return nil, err
	}
	same, err := s.Store.People.Memberships(ctx, who.Tenant.ID, who.Member.Email, current)
	if err != nil {
		return nil, err
	}
	if len(same) == 0 {
		return nil, metering.Invalid("body.current", "is not the current password")
	}
	next, err := hashOf(in.Body.New)
	if err != nil {
		return nil, err
	}
	if err := s.Store.Members.SetPassword(ctx, same[0].Member, next, who.Session.ID); err != nil {
		return nil, err
	}
	out := new(passwordSetOutput)
	out.Body.Changed = true
	return out, nil
}
