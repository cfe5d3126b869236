package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/chromedp/chromedp"
)

// testOtherMembers tests two invited members: a viewer with a password, and a member with an account at ISSUER.
func (w walk) testOtherMembers(ctx context.Context) error {
	var links [2]string
	tenant, err := w.connected(ctx)
	if err != nil {
		return fmt.Errorf("connect the issuer: %w", err)
	}
	for i, name := range []string{"Vera", "Olga"} {
		email := strings.ToLower(name) + "@example.com"
		err := do(ctx, w.to("/settings/members"), press("Invite a member"), fill("E-mail", email), fill("Name", name), press("Create the invitation"), see("/invitation#"),
			read("[data-secret]", &links[i]), kept, see(email))
		if err != nil {
			return fmt.Errorf("invite %s: %w", name, err)
		}
	}
	if err := w.signOut(ctx); err != nil {
		return err
	}
	if err := w.vera(ctx, strings.TrimPrefix(links[0], w.url)); err != nil {
		return fmt.Errorf("a viewer: %w", err)
	}
	if err := w.olga(ctx, strings.TrimPrefix(links[1], w.url), tenant); err != nil {
		return fmt.Errorf("at the issuer: %w", err)
	}
	return do(ctx, w.signIn,
		w.to("/settings/members"), press("Vera"), press("Remove"), see("Keep them valid"), w.judged("member-remove"), press("Remove"), miss("vera@example.com"),
		w.to("/settings/single-sign-on"), press("Delete the issuer"), see("can no longer sign in at"), press("Delete the issuer"), miss("can no longer sign in at"),
		w.to("/settings/members"), press("Olga"), press("Make owner"), see("A tenant has one owner"), w.judged("member-make-owner"), press("Make owner"), miss("A tenant has one owner"),
	)
}

// connected saves the issuer and returns the id of the tenant.
func (w walk) connected(ctx context.Context) (tenant string, err error) {
	err = do(ctx,
		w.to("/settings/single-sign-on"), fill("Issuer", w.issuer), fill("Client ID", w.client), fill("Client secret", w.secret), press("Save the issuer"), see("with a client secret"),
		w.to("/settings/tenant"), read("main dd .mono", &tenant),
	)
	return tenant, err
}

// vera accepts the invitation with a password, checks a viewer's screens, and requests a password reset.
func (w walk) vera(ctx context.Context, link string) error {
	if err := w.judgeScreen(ctx, screen{"invitation", link, "main form"}); err != nil {
		return err
	}
	err := do(ctx, w.to(link), fill("Password", "vera's own horse battery"), press("Accept the invitation"), see("Overview"), w.to("/settings"), see("vera@example.com"))
	if err != nil {
		return err
	}
	for _, s := range []screen{
		{"viewer-members", "/settings/members", "main h2"},
		{"viewer-audit-log", "/settings/audit-log", "main h2"},
		{"viewer-overview", "/overview", "main h1"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	if err := w.signOut(ctx); err != nil {
		return err
	}
	for _, s := range []screen{
		{"invitation-over", "/invitation", "main h1"},
		{"forgotten", "/sign-in/forgotten", "main form"},
		{"at-issuer", "/sign-in/issuer", "main form"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	return do(ctx, w.to("/sign-in"), press("Forgot your password?"), see("can send you a link"), fill("E-mail", "vera@example.com"), press("Request a link"), see("Link requested"))
}

const navigation = `nav a[href="/overview"]` // shown after the sign-in

// olga accepts the invitation by signing in at the issuer, and later signs in there again. Then it opens an
// expired callback and the sign-in of an unknown tenant.
func (w walk) olga(ctx context.Context, link, tenant string) error {
	return do(ctx, w.to(link), press("Accept at"), arrive(navigation), see("Olga"), w.signOut,
		w.to("/sign-in"), press("Sign in through your company's issuer"), fill("Tenant", tenant), press("Continue"), arrive("p strong"), see("signs its members in at"), w.judged("issuer-page"), press("Continue to"), arrive(navigation), see("Olga"), w.signOut,
		w.openDirectly("/v1/auth/oidc/callback?state=bookmarked"), arrive(`input[name="password"]`), see("Start again"), w.judged("issuer-over"),
		w.openDirectly("/v1/auth/oidc/ten_0/login"), see("You are not signed in"), w.refused("/v1/auth/oidc/ten_0/login"), w.judged("issuer-refused"), press("Begin again"), arrive(`input[maxlength="32"]`), see("Sign in through an issuer"))
}

// openDirectly opens a URL of the API directly, as a bookmark does.
func (w walk) openDirectly(path string) act {
	return func(ctx context.Context) error { return chromedp.Do(ctx, chromedp.Navigate(w.url+path)) }
}
