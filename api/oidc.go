package api

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

const (
	callbackPath  = "/v1/auth/oidc/callback"
	signInCookie  = "odometer_sign_in"
	signInLasts   = 10 * time.Minute
	issuerTimeout = 10 * time.Second
	maxIssuerBody = 1 << 20
)

type oidcSettings struct {
	Issuer          string    `json:"issuer"`
	ClientID        string    `json:"client_id"`
	HasClientSecret bool      `json:"has_client_secret"`
	RedirectURI     string    `json:"redirect_uri" doc:"What to register at the issuer"`
	LoginURL        string    `json:"login_url" doc:"Where members begin to sign in"`
	UpdatedAt       time.Time `json:"updated_at"`
}

func showOIDC(tenant metering.TenantID, o metering.OIDC) oidcSettings {
	return oidcSettings{
		Issuer: o.Issuer, ClientID: o.ClientID, HasClientSecret: o.SealedSecret != nil, RedirectURI: o.RedirectBase + callbackPath,
		LoginURL: o.RedirectBase + "/v1/auth/oidc/" + tenant.String() + "/login", UpdatedAt: o.UpdatedAt.UTC(),
	}
}

type oidcOutput struct{ Body oidcSettings }

func (s *server) getOIDC(ctx context.Context, _ *struct{}) (*oidcOutput, error) {
	tenant := principalOf(ctx).Tenant.ID
	o, err := s.Store.OIDC.Get(ctx, tenant)
	if err != nil {
		return nil, err
	}
	return &oidcOutput{showOIDC(tenant, o)}, nil
}

type saveOIDCInput struct {
	Body struct {
		Issuer       string  `json:"issuer" maxLength:"2048" doc:"Exactly as its discovery document says"`
		ClientID     string  `json:"client_id" minLength:"1" maxLength:"255"`
		ClientSecret *string `json:"client_secret,omitempty" minLength:"1" maxLength:"1024" doc:"Absent for a public client. It is not shown again"`
		RedirectBase *string `json:"redirect_base,omitempty" maxLength:"2048" doc:"Where browsers reach this API; its own base URL when absent"`
	}
}

// saveOIDC stores an issuer whose discovery document was read.
func (s *server) saveOIDC(ctx context.Context, in *saveOIDCInput) (*oidcOutput, error) {
	who := principalOf(ctx)
	o := metering.OIDC{Issuer: in.Body.Issuer, ClientID: in.Body.ClientID, RedirectBase: s.BaseURL}
	if !storable(o.ClientID) {
		return nil, metering.Invalid("body.client_id", "must be UTF-8 without NUL")
	}
	if in.Body.RedirectBase != nil {
		if err := s.Guard.CheckURL("body.redirect_base", *in.Body.RedirectBase); err != nil {
			return nil, err
		}
		o.RedirectBase = *in.Body.RedirectBase
	}
	if err := s.Guard.CheckURL("body.issuer", o.Issuer); err != nil {
		return nil, err
	}
	if _, err := s.discover(ctx, o.Issuer); err != nil {
		return nil, metering.Invalid("body.issuer", "must answer with its discovery document, whose endpoints are public https URLs").Because(err)
	}
	if in.Body.ClientSecret != nil {
		sealed, err := s.Keyring.Seal(who.Tenant.ID, db.OIDCSecret, []byte(*in.Body.ClientSecret))
		if err != nil {
			return nil, err
		}
		o.SealedSecret = sealed
	}
	o, err := s.Store.OIDC.Save(ctx, who.Tenant.ID, who.Actor, o)
	if err != nil {
		return nil, err
	}
	return &oidcOutput{showOIDC(who.Tenant.ID, o)}, nil
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

// discover reads an issuer's document. Each URL in it is the issuer's choice,
// so each is checked as a tenant's own.
func (s *server) discover(ctx context.Context, issuer string) (*oidc.Provider, error) {
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, s.issuers), issuer)
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

// bounded cuts answers that are longer than any issuer's: they are read whole.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, maxIssuerBody), response.Body}
	return response, nil
}

// newIssuers returns the client that calls tenants' issuers.
func newIssuers(client *http.Client) *http.Client {
	client.Transport = bounded{client.Transport}
	return client
}

// issuer is a tenant's issuer, ready to be asked.
type issuer struct {
	settings metering.OIDC
	provider *oidc.Provider
	code     oauth2.Config
}

func (s *server) issuerOf(ctx context.Context, tenant metering.TenantID) (*issuer, error) {
	settings, err := s.Store.OIDC.Get(ctx, tenant)
	if err != nil {
		return nil, err
	}
	var secret []byte
	if settings.SealedSecret != nil {
		if secret, err = s.Keyring.Open(tenant, db.OIDCSecret, settings.SealedSecret); err != nil {
			return nil, err
		}
	}
	provider, err := s.discover(ctx, settings.Issuer)
	if err != nil {
		return nil, errIssuer.Because(err)
	}
	return &issuer{settings, provider, oauth2.Config{
		ClientID: settings.ClientID, ClientSecret: string(secret), Endpoint: provider.Endpoint(),
		RedirectURL: settings.RedirectBase + callbackPath, Scopes: []string{oidc.ScopeOpenID, "email"},
	}}, nil
}

var errIssuer = metering.Errorf(metering.CodeUnavailable, "the tenant's OIDC issuer does not answer as it should; try again")

type redirectOutput struct {
	Location  string   `header:"Location"`
	SetCookie []string `header:"Set-Cookie"`
}

type beginOIDCInput struct {
	TenantID string `path:"tenant_id" example:"ten_42"`
}

// beginOIDC sends a browser to the tenant's issuer.
func (s *server) beginOIDC(ctx context.Context, in *beginOIDCInput) (*redirectOutput, error) {
	if err := s.countSignInFrom(ctx); err != nil {
		return nil, err
	}
	tenant, ok := metering.ParseTenantID(in.TenantID)
	if !ok {
		return nil, metering.Errorf(metering.CodeNotFound, "there is no such tenant")
	}
	at, err := s.issuerOf(ctx, tenant)
	if err != nil {
		return nil, err
	}
	now := s.Now()
	begun := metering.SignIn{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), ExpiresAt: now.Add(signInLasts)}
	if err := s.Store.OIDC.Begin(ctx, tenant, begun, now); err != nil {
		return nil, err
	}
	location := at.code.AuthCodeURL(begun.State, oidc.Nonce(begun.Nonce), oauth2.S256ChallengeOption(begun.Verifier))
	// Lax: the way back comes from the issuer's site.
	cookie := s.cookie(signInCookie, begun.State, signInLasts, http.SameSiteLaxMode)
	return &redirectOutput{location, []string{cookie}}, nil
}

type finishOIDCInput struct {
	State  string `query:"state" maxLength:"255"`
	Code   string `query:"code" maxLength:"4096"`
	Error  string `query:"error" maxLength:"255"`
	Issuer string `query:"iss" maxLength:"2048" doc:"RFC 9207"`
}

var errSignInLost = metering.Errorf(metering.CodeUnauthorized, "this sign-in was not begun in this browser, is over, or took too long; begin again")

// finishOIDC signs a browser in that comes back from the issuer it was sent to.
func (s *server) finishOIDC(ctx context.Context, in *finishOIDCInput) (*redirectOutput, error) {
	if err := s.countSignInFrom(ctx); err != nil {
		return nil, err
	}
	cookie, err := exchangeOf(ctx).request.Cookie(s.cookieName(signInCookie))
	if err != nil || subtle.ConstantTimeCompare([]byte(cookie.Value), []byte(in.State)) != 1 || !storable(in.State) {
		return nil, errSignInLost
	}
	tenant, begun, err := s.Store.OIDC.Take(ctx, in.State)
	if err != nil {
		return nil, err
	}
	if !s.Now().Before(begun.ExpiresAt) {
		return nil, errSignInLost
	}
	if in.Error != "" {
		return nil, metering.Errorf(metering.CodeUnauthorized, "the issuer did not sign you in")
	}
	at, err := s.issuerOf(ctx, tenant)
	if err != nil {
		return nil, err
	}
	if in.Issuer != "" && in.Issuer != at.settings.Issuer {
		return nil, errSignInLost
	}
	email, err := s.verifiedEmail(ctx, at, begun, in.Code)
	if err != nil {
		return nil, err
	}
	m, err := s.Store.Members.ByEmail(ctx, tenant, email)
	if metering.CodeOf(err) == metering.CodeNotFound {
		return nil, metering.Errorf(metering.CodeUnauthorized, "the issuer knows you, but you are no member of the tenant")
	}
	if err != nil {
		return nil, err
	}
	_, token, err := s.beginSession(ctx, m)
	if err != nil {
		return nil, err
	}
	cookies := []string{s.sessionCookie(token, sessionLength), s.cookie(signInCookie, "", 0, http.SameSiteLaxMode)}
	return &redirectOutput{at.settings.RedirectBase + "/", cookies}, nil
}

var errIDToken = metering.Errorf(metering.CodeUnauthorized, "the issuer's answer is not one to this sign-in")

// verifiedEmail trades the code for an ID token and returns the e-mail in it.
func (s *server) verifiedEmail(ctx context.Context, at *issuer, begun metering.SignIn, code string) (string, error) {
	ctx = oidc.ClientContext(ctx, s.issuers)
	token, err := at.code.Exchange(ctx, code, oauth2.VerifierOption(begun.Verifier))
	var refusal *oauth2.RetrieveError
	if errors.As(err, &refusal) {
		return "", errIDToken.Because(fmt.Errorf("exchange code: status %d", refusal.Response.StatusCode)) // its text is the issuer's
	}
	if err != nil {
		return "", errIssuer.Because(fmt.Errorf("exchange code: %w", providers.Redact(err)))
	}
	raw, _ := token.Extra("id_token").(string)
	verified, err := at.provider.Verifier(&oidc.Config{ClientID: at.settings.ClientID, Now: s.Now}).Verify(ctx, raw)
	if err != nil {
		return "", errIDToken.Because(fmt.Errorf("verify ID token: %w", providers.Redact(err)))
	}
	var claims struct {
		Email    string `json:"email"`
		Verified bool   `json:"email_verified"`
	}
	if verified.Nonce != begun.Nonce || verified.Claims(&claims) != nil {
		return "", errIDToken
	}
	if !claims.Verified || metering.ValidEmail("email", claims.Email) != nil {
		return "", metering.Errorf(metering.CodeUnauthorized, "the issuer has not verified your e-mail address")
	}
	return claims.Email, nil
}
