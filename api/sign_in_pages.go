package api

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"html/template"
	"net/http"
	"net/url"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/metering"
)

// pageFrame is the HTML around the content of the sign-in pages. They need no scripts.
const pageFrame = `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="referrer" content="no-referrer">
<title>{{template "title" .}}</title>
<link rel="icon" type="image/svg+xml" href="/icon.svg">
<style nonce="{{.Nonce}}">
main { box-sizing: border-box; max-width: 344px; margin: 16vh auto 0; padding: 0 16px; font: 14px/20px system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 20px; line-height: 28px }
p::first-letter { text-transform: uppercase }
</style>
<main>
<h1>{{template "title" .}}</h1>
{{template "content" .}}</main>
`

// framed returns the template of a page within pageFrame.
func framed(page string) *template.Template {
	return template.Must(template.Must(template.New("page").Parse(pageFrame)).Parse(page))
}

// issuerLink is a page with the issuer's host and a link to the issuer. It does not redirect, because the tenant
// chooses the issuer. A redirect would let a link to this service lead to any site, or sign in a browser that
// only opened the link.
var issuerLink = framed(`{{define "title"}}Sign in to {{.Tenant}}{{end}}
{{define "content"}}<p>{{.Tenant}} signs its members in at <strong>{{.Host}}</strong>. Continue only if you recognize that site.</p>
<p><a href="{{.Location}}">Continue to {{.Host}}</a></p>
{{end}}`)

// notSignedIn is the page of a failed sign-in at an issuer.
var notSignedIn = framed(`{{define "title"}}You are not signed in{{end}}
{{define "content"}}<p>{{.Problem.Detail}}.</p>
<p>If this happens again, ask the owner of your tenant to check its single sign-on or to invite you again. The request id for the operator is <code>{{.Problem.RequestID}}</code>.</p>
<p><a href="/sign-in/issuer">Begin again</a></p>
<p><a href="/sign-in">Sign in with a password</a></p>
{{end}}`)

type signInPageOutput struct {
	SetCookie   string `header:"Set-Cookie"`
	ContentType string `header:"Content-Type"`
	Policy      string `header:"Content-Security-Policy"`
	Body        func(huma.Context)
}

const contentTypeOfPages = "text/html; charset=utf-8"

func policyOfPages(nonce string) string {
	return "default-src 'none'; img-src 'self'; style-src 'nonce-" + nonce + "'; frame-ancestors 'none'"
}

// issuerLinkPage returns the page that links to a tenant's issuer.
func issuerLinkPage(tenant metering.Tenant, location, cookie string) (*signInPageOutput, error) {
	way, err := url.Parse(location)
	if err != nil {
		return nil, errIssuer.Because(err)
	}
	var page bytes.Buffer
	nonce := rand.Text()
	if err := issuerLink.Execute(&page, map[string]string{"Tenant": tenant.Name, "Host": way.Host, "Location": location, "Nonce": nonce}); err != nil {
		return nil, fmt.Errorf("render sign-in page: %w", err)
	}
	return &signInPageOutput{cookie, contentTypeOfPages, policyOfPages(nonce), func(ctx huma.Context) {
		ctx.SetStatus(http.StatusOK)
		if _, err := ctx.BodyWriter().Write(page.Bytes()); err != nil {
			exchangeOf(ctx.Context()).err = fmt.Errorf("write page: %w", err)
		}
	}}, nil
}

// notSignedInPage returns a response that shows the error of a sign-in as an HTML page.
func notSignedInPage(err error) func(huma.Context) {
	return func(ctx huma.Context) {
		x := exchangeOf(ctx.Context())
		x.err = err
		problem := x.problem(ctx, problemOf(err))
		nonce := rand.Text()
		ctx.SetHeader("Content-Type", contentTypeOfPages)
		ctx.SetHeader("Content-Security-Policy", policyOfPages(nonce))
		ctx.SetStatus(problem.Status)
		if err := notSignedIn.Execute(ctx.BodyWriter(), map[string]any{"Problem": problem, "Nonce": nonce}); err != nil {
			x.err = fmt.Errorf("write page: %w", err)
		}
	}
}

func (s *server) describeSignInPages() {
	page := &huma.MediaType{Schema: &huma.Schema{Type: huma.TypeString}}
	paths := s.api.OpenAPI().Paths
	paths[beginOIDCPath].Get.Responses["200"].Content = map[string]*huma.MediaType{"text/html": page}
	for _, path := range []string{beginOIDCPath, callbackPath} {
		paths[path].Get.Responses["default"].Content["text/html"] = page
	}
}
