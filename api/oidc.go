package api

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/oauth2"

	"github.com/odometer-metering/odometer/db/seal"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

const (
	beginOIDCPath = "/v1/auth/oidc/{tenant_id}/login"
	callbackPath  = "/v1/auth/oidc/callback"
	signInCookie  = "odometer_sign_in"
	signInLasts   = 10 * time.Minute
)

type oidcSettings struct {
	Configured      bool       `json:"configured" doc:"Whether the tenant has an OIDC issuer. If false, 'issuer' and client_id are empty"`
	Issuer          string     `json:"issuer"`
	ClientID        string     `json:"client_id"`
	HasClientSecret bool       `json:"has_client_secret"`
	RedirectURI     string     `json:"redirect_uri" doc:"Redirect URI to register at the issuer"`
	LoginURL        string     `json:"login_url" doc:"Page at which members begin to sign in"`
	UpdatedAt       *time.Time `json:"updated_at" doc:"Time of the last change. Null without an issuer"`
}

func (s *server) registerOIDC() {
	huma.Register(s.api, post("accept-invitation-at-issuer", "/v1/invitations/accept-at-issuer", Public, "Accept an invitation at the tenant's OIDC issuer",
		"Returns the URL at which the browser signs in. The account that signs in there becomes the member's account."), s.acceptAtIssuer)
	huma.Register(s.api, ignoringUnknownQuery(writing(get("begin-oidc", beginOIDCPath, Public, "Begin signing in at the tenant's OIDC issuer",
		"Returns a page that names the issuer and links to it. The sign-in must finish in the same browser within ten minutes."))), s.beginOIDC)
	huma.Register(s.api, s.redirectingLong(ignoringUnknownQuery(writing(redirect(get("finish-oidc", callbackPath, Public, "Finish signing in at the tenant's OIDC issuer",
		"The issuer redirects the browser to this page. Each sign-in is accepted once, and only in the browser that began it."))))), s.finishOIDC)
	s.describeSignInPages()
	huma.Register(s.api, get("get-oidc", "/v1/tenant/oidc", TenantManage, "Get the tenant's OIDC issuer",
		"Without an issuer, `configured` is false. `redirect_uri` is the address to register at the issuer before you save the issuer."), s.getOIDC)
	huma.Register(s.api, put("save-oidc", "/v1/tenant/oidc", TenantManage, "Save the tenant's OIDC issuer",
		"The settings are tested at the issuer first."), s.saveOIDC)
	huma.Register(s.api, remove("delete-oidc", "/v1/tenant/oidc", TenantManage, "Delete the tenant's OIDC issuer",
		"Afterwards, a member without a password cannot sign in until you reset the member's password or save another issuer."), s.deleteOIDC)
}

func (s *server) showOIDC(tenant metering.TenantID, o metering.OIDC) oidcSettings {
	shown := s.withoutOIDC(tenant)
	shown.Configured, shown.Issuer, shown.ClientID, shown.HasClientSecret = true, o.Issuer, o.ClientID, o.SealedSecret != nil
	shown.UpdatedAt = new(o.UpdatedAt.UTC())
	return shown
}

// withoutOIDC returns the settings of a tenant without an issuer. They contain only the redirect URI and the
// login URL.
func (s *server) withoutOIDC(tenant metering.TenantID) oidcSettings {
	return oidcSettings{RedirectURI: s.BaseURL + callbackPath, LoginURL: s.BaseURL + "/v1/auth/oidc/" + tenant.String() + "/login"}
}

type oidcOutput struct{ Body oidcSettings }

func (s *server) getOIDC(ctx context.Context, _ *struct{}) (*oidcOutput, error) {
	tenant := principalOf(ctx).Tenant.ID
	o, err := s.Store.OIDC.Get(ctx, tenant)
	switch {
	case metering.CodeOf(err) == metering.CodeNotFound:
		return &oidcOutput{s.withoutOIDC(tenant)}, nil
	case err != nil:
		return nil, err
	}
	return &oidcOutput{s.showOIDC(tenant, o)}, nil
}

type saveOIDCInput struct {
	Body struct {
		Issuer       string  `json:"issuer" maxLength:"2048" doc:"Issuer exactly as in its discovery document"`
		ClientID     string  `json:"client_id" minLength:"1" maxLength:"255"`
		ClientSecret *string `json:"client_secret,omitempty" minLength:"1" maxLength:"1024" doc:"Secret of the client at the issuer. Omit the secret for a public client. Responses never contain it"`
	}
}

// saveOIDC stores an issuer after its discovery document has been read and checked.
func (s *server) saveOIDC(ctx context.Context, in *saveOIDCInput) (*oidcOutput, error) {
	who := principalOf(ctx)
	o := metering.OIDC{Issuer: in.Body.Issuer, ClientID: in.Body.ClientID}
	if !storable(o.ClientID) {
		return nil, metering.Invalid("body.client_id", "must be UTF-8 without NUL")
	}
	if err := s.Guard.CheckURL("body.issuer", o.Issuer); err != nil {
		return nil, err
	}
	if _, err := s.discover(oidc.ClientContext(ctx, s.issuers.clientOf(who.Tenant.ID)), o.Issuer); err != nil {
		return nil, metering.Invalid("body.issuer", "must serve a discovery document with public https URLs as endpoints").Because(err)
	}
	if in.Body.ClientSecret != nil {
		sealed, err := s.Keyring.Seal(who.Tenant.ID, seal.OIDCSecret, []byte(*in.Body.ClientSecret))
		if err != nil {
			return nil, err
		}
		o.SealedSecret = sealed
	}
	o, err := s.Store.OIDC.Save(ctx, who.Tenant.ID, who.Actor, o)
	if err != nil {
		return nil, err
	}
	return &oidcOutput{s.showOIDC(who.Tenant.ID, o)}, nil
}

type deleteOIDCOutput struct {
	Body struct {
		Deleted bool `json:"deleted"`
	}
}

func (s *server) deleteOIDC(ctx context.Context, _ *struct{}) (*deleteOIDCOutput, error) {
	who := principalOf(ctx)
	if err := s.Store.OIDC.Delete(ctx, who.Tenant.ID, who.Actor); err != nil {
		return nil, err
	}
	out := new(deleteOIDCOutput)
	out.Body.Deleted = true
	return out, nil
}

// discover reads an issuer's discovery document with the client in ctx. The issuer chooses the endpoint URLs in the
// document, so each URL must pass the same check as a URL from the tenant.
func (s *server) discover(ctx context.Context, issuer string) (*oidc.Provider, error) {
	provider, err := oidc.NewProvider(ctx, issuer)
	if err != nil {
		return nil, fmt.Errorf("discover issuer: %w", providers.Redact(err))
	}
	var document struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&document); err != nil {
		return nil, fmt.Errorf("read discovery document: %w", providers.Redact(err))
	}
	for _, endpoint := range []string{provider.Endpoint().AuthURL, provider.Endpoint().TokenURL, document.Keys} {
		if err := s.Guard.CheckURL("endpoint", endpoint); err != nil {
			return nil, err
		}
	}
	return provider, nil
}

// issuer is a tenant's issuer with its discovery document and its OAuth client.
type issuer struct {
	settings metering.OIDC
	client   *http.Client
	provider *oidc.Provider
	code     oauth2.Config
}

// issuerOf returns a tenant's issuer. It reads the issuer's discovery document.
func (s *server) issuerOf(ctx context.Context, tenant metering.TenantID) (*issuer, error) {
	settings, err := s.Store.OIDC.Get(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var secret []byte
	if settings.SealedSecret != nil {
		if secret, err = s.Keyring.Open(tenant, seal.OIDCSecret, settings.SealedSecret); err != nil {
			return nil, err
		}
	}
	client := s.issuers.clientOf(tenant)
	provider, err := s.discover(oidc.ClientContext(ctx, client), settings.Issuer)
	if err != nil {
		return nil, errIssuer.Because(err)
	}
	return &issuer{settings, client, provider, oauth2.Config{
		ClientID: settings.ClientID, ClientSecret: string(secret), Endpoint: provider.Endpoint(),
		RedirectURL: s.BaseURL + callbackPath, Scopes: []string{oidc.ScopeOpenID},
	}}, nil
}

var errIssuer = metering.Errorf(metering.CodeUnavailable, "the tenant's OIDC issuer did not respond correctly; try again")

// signInSecrets derives the nonce, the PKCE verifier and the hash of a sign-in from its state and a key. The
// database stores only the hash.
type signInSecrets struct{ key []byte }

func newSignInSecrets(secret []byte) (signInSecrets, error) {
	key, err := derive(secret, "oidc-sign-ins")
	return signInSecrets{key}, err
}

// derived returns the secret of a sign-in for one purpose.
func (s signInSecrets) derived(state, purpose string) []byte {
	mac := hmac.New(sha256.New, s.key)
	mac.Write([]byte(purpose + ":" + state))
	return mac.Sum(nil)
}

func (s signInSecrets) hash(state string) []byte { return s.derived(state, "hash") }

// nonce returns the nonce, which the ID token must repeat.
func (s signInSecrets) nonce(state string) string {
	return base64.RawURLEncoding.EncodeToString(s.derived(state, "nonce"))
}

// verifier returns the PKCE code verifier, which proves that this service requested the code.
func (s signInSecrets) verifier(state string) string {
	return base64.RawURLEncoding.EncodeToString(s.derived(state, "verifier"))
}

// startOIDCSignIn starts a sign-in at the tenant's issuer. It returns the issuer's URL to open in the
// browser, and a cookie that contains the state of the sign-in.
func (s *server) startOIDCSignIn(ctx context.Context, tenant metering.TenantID, invitation *metering.InvitationID) (location, cookie string, err error) {
	at, err := s.issuerOf(ctx, tenant)
	if err != nil {
		return "", "", err
	}
	now, state := s.Now(), rand.Text()
	begun := metering.SignIn{TenantID: tenant, StateHash: s.secrets.hash(state), InvitationID: invitation, ExpiresAt: now.Add(signInLasts)}
	if err := s.Store.OIDC.Begin(ctx, begun, now); err != nil {
		return "", "", err
	}
	location = at.code.AuthCodeURL(state, oidc.Nonce(s.secrets.nonce(state)), oauth2.S256ChallengeOption(s.secrets.verifier(state)))
	// SameSite is Lax, because browsers do not send a Strict cookie with the redirect from the issuer's site.
	return location, s.cookie(signInCookie, state, signInLasts, http.SameSiteLaxMode), nil
}

type beginOIDCInput struct {
	TenantID string `path:"tenant_id" example:"ten_42"`
}

// beginOIDC returns a page that links to the tenant's issuer. If an error occurs, a browser gets an error
// page, and other clients get Problem Details.
func (s *server) beginOIDC(ctx context.Context, in *beginOIDCInput) (*signInPageOutput, error) {
	page, err := s.startSignInPage(ctx, in)
	if err != nil && acceptsHTML(exchangeOf(ctx).request) {
		return &signInPageOutput{Body: notSignedInPage(err)}, nil
	}
	return page, err
}

// startSignInPage starts a sign-in at the tenant's issuer, and returns the page that links to the issuer.
func (s *server) startSignInPage(ctx context.Context, in *beginOIDCInput) (*signInPageOutput, error) {
	if err := s.countSignInFrom(ctx); err != nil {
		return nil, err
	}
	id, ok := metering.ParseTenantID(in.TenantID)
	if !ok {
		return nil, metering.Errorf(metering.CodeNotFound, "there is no such tenant")
	}
	location, cookie, err := s.startOIDCSignIn(ctx, id, nil)
	if err != nil {
		return nil, err
	}
	tenant, err := s.Store.Tenants.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	return issuerLinkPage(tenant, location, cookie)
}

type acceptAtIssuerInput struct {
	Body struct {
		Token string `json:"token" maxLength:"64" doc:"Token of the invitation"`
	}
}

type signInAtIssuerOutput struct {
	SetCookie string `header:"Set-Cookie"`
	Body      struct {
		Location string `json:"location" doc:"URL at which this browser signs in. Signing in there accepts the invitation"`
	}
}

// acceptAtIssuer returns the issuer's URL to the holder of an invitation token. The account that signs in
// there becomes the account of the invited member.
func (s *server) acceptAtIssuer(ctx context.Context, in *acceptAtIssuerInput) (*signInAtIssuerOutput, error) {
	if err := s.countSignInFrom(ctx); err != nil {
		return nil, err
	}
	invitation, err := s.Store.Invitations.Find(ctx, s.invitations.hash(in.Body.Token), s.Now())
	if err != nil {
		return nil, err
	}
	out := new(signInAtIssuerOutput)
	out.Body.Location, out.SetCookie, err = s.startOIDCSignIn(ctx, invitation.TenantID, &invitation.ID)
	return out, err
}

type finishOIDCOutput struct {
	Location  string   `header:"Location"`
	SetCookie []string `header:"Set-Cookie"`
	Body      func(huma.Context)
}

type finishOIDCInput struct {
	State  string `query:"state" maxLength:"255" doc:"State of the redirect to the issuer"`
	Code   string `query:"code" maxLength:"4096" doc:"Authorization code of the issuer"`
	Error  string `query:"error" maxLength:"255" doc:"Error code of the issuer"`
	Issuer string `query:"iss" maxLength:"2048" doc:"Issuer of the response, as defined by RFC 9207"`
}

var errSignInLost = metering.Errorf(metering.CodeUnauthorized, "this sign-in was begun in another browser, is finished or has expired; begin again")

// redirectingLong adds the middleware redirectLong to an operation.
func (s *server) redirectingLong(op huma.Operation) huma.Operation {
	op.Middlewares = huma.Middlewares{s.redirectLong}
	return op
}

// redirectLong redirects a browser to the dashboard's sign-in page if a query parameter of the callback is too
// long. Otherwise the browser would show the JSON of the validation error. Other clients get that error.
func (s *server) redirectLong(ctx huma.Context, next func(huma.Context)) {
	tooLong := func(p *huma.Param) bool {
		return p.Schema.MaxLength != nil && utf8.RuneCountInString(ctx.Query(p.Name)) > *p.Schema.MaxLength
	}
	if acceptsHTML(exchangeOf(ctx.Context()).request) && slices.ContainsFunc(ctx.Operation().Parameters, tooLong) {
		s.beginAgain(ctx)
		return
	}
	next(ctx)
}

// beginAgain redirects to the dashboard's sign-in page, which shows that this sign-in has ended.
func (s *server) beginAgain(ctx huma.Context) {
	exchangeOf(ctx.Context()).err = errSignInLost
	ctx.SetHeader("Location", s.BaseURL+"/sign-in?problem=over")
	ctx.SetStatus(http.StatusFound)
}

// finishOIDC handles the redirect from the issuer. It signs the member in and redirects the browser to the
// dashboard. If the sign-in fails, a browser gets a redirect or an error page, and other clients get Problem
// Details.
func (s *server) finishOIDC(ctx context.Context, in *finishOIDCInput) (*finishOIDCOutput, error) {
	token, err := s.signInFromIssuer(ctx, in)
	isBrowser := acceptsHTML(exchangeOf(ctx).request)
	switch {
	case isBrowser && errors.Is(err, errSignInLost):
		return &finishOIDCOutput{Body: s.beginAgain}, nil
	case isBrowser && err != nil:
		return &finishOIDCOutput{Body: notSignedInPage(err)}, nil
	case err != nil:
		return nil, err
	}
	cookies := []string{s.sessionCookie(token, sessionLength), s.cookie(signInCookie, "", 0, http.SameSiteLaxMode)}
	return &finishOIDCOutput{s.BaseURL + "/", cookies, func(ctx huma.Context) { ctx.SetStatus(http.StatusFound) }}, nil
}

// signInFromIssuer starts a session for the member that the issuer has authenticated. The request must contain the
// cookie that startOIDCSignIn set in the browser.
func (s *server) signInFromIssuer(ctx context.Context, in *finishOIDCInput) (token string, err error) {
	if err := s.countSignInFrom(ctx); err != nil {
		return "", err
	}
	cookie, err := exchangeOf(ctx).request.Cookie(s.cookieName(signInCookie))
	if err != nil || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(in.State)) != 1 || !storable(in.State) {
		return "", errSignInLost
	}
	begun, err := s.Store.OIDC.Take(ctx, s.secrets.hash(in.State))
	if metering.CodeOf(err) == metering.CodeNotFound {
		return "", errSignInLost
	}
	if err != nil {
		return "", err
	}
	if !s.Now().Before(begun.ExpiresAt) {
		return "", errSignInLost
	}
	if in.Error != "" {
		return "", metering.Errorf(metering.CodeUnauthorized, "the issuer refused the sign-in")
	}
	at, err := s.issuerOf(ctx, begun.TenantID)
	if err != nil {
		return "", err
	}
	if in.Issuer != "" && in.Issuer != at.settings.Issuer {
		return "", errSignInLost
	}
	identity, err := s.identity(ctx, at, in.State, in.Code)
	if err != nil {
		return "", err
	}
	m, err := s.memberBy(ctx, begun, identity)
	if err != nil {
		return "", err
	}
	_, token, err = s.beginSession(ctx, m)
	return token, err
}

// memberBy returns the tenant's member with this identity. If the sign-in belongs to an invitation, memberBy
// accepts the invitation with the identity and returns the invited member.
func (s *server) memberBy(ctx context.Context, begun metering.SignIn, identity metering.Identity) (metering.Member, error) {
	if begun.InvitationID != nil {
		return s.Store.Invitations.AcceptAt(ctx, begun.TenantID, *begun.InvitationID, identity, s.Now())
	}
	m, err := s.Store.OIDC.Member(ctx, begun.TenantID, identity)
	if metering.CodeOf(err) == metering.CodeNotFound {
		return m, metering.Errorf(metering.CodeUnauthorized, "the issuer confirmed the sign-in, but no member has this account: accept an invitation with it first")
	}
	return m, err
}

var errIDToken = metering.Errorf(metering.CodeUnauthorized, "the issuer's response does not belong to this sign-in")

const maxSubject = 255 // OpenID Connect Core 1.0, 2

// identity exchanges the code for an ID token and returns the identity in it.
func (s *server) identity(ctx context.Context, at *issuer, state, code string) (none metering.Identity, err error) {
	ctx = oidc.ClientContext(ctx, at.client)
	token, err := at.code.Exchange(ctx, code, oauth2.VerifierOption(s.secrets.verifier(state)))
	var refusal *oauth2.RetrieveError
	if errors.As(err, &refusal) {
		return none, errIDToken.Because(fmt.Errorf("exchange code: status %d", refusal.Response.StatusCode)) // the error text comes from the issuer
	}
	if err != nil {
		return none, errIssuer.Because(fmt.Errorf("exchange code: %w", providers.Redact(err)))
	}
	raw, _ := token.Extra("id_token").(string)
	verified, err := at.provider.Verifier(&oidc.Config{ClientID: at.settings.ClientID, Now: s.Now}).Verify(ctx, raw)
	if err != nil {
		return none, errIDToken.Because(fmt.Errorf("verify ID token: %w", providers.Redact(err)))
	}
	if verified.Nonce != s.secrets.nonce(state) || verified.Subject == "" || len(verified.Subject) > maxSubject || !storable(verified.Subject) {
		return none, errIDToken
	}
	return metering.Identity{Issuer: verified.Issuer, Subject: verified.Subject}, nil
}
