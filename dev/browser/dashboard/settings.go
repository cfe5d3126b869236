package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/chromedp/chromedp"
)

// settings tests the screens of the settings. It invites a member, renews and revokes the invitation, changes
// the tenant's settings, saves and deletes ISSUER, and checks an entry of the audit log. It also changes the
// password and ends sessions.
func (w walk) settings(ctx context.Context) error {
	var reset string
	err := do(ctx,
		w.to("/settings"), see("Invitations"),
		press("Invite a member"), fill("E-mail", "bea@example.com"), fill("Name", "Bea"), choose("Role", "billing: reads everything; changes prices and billing"),
		w.judged("member-invite"), press("Create the invitation"), see("/invitation#"), w.judged("member-invited"), kept, see("bea@example.com"),
		press("Renew"), see("no longer valid"), press("Renew"), see("/invitation#"), kept, miss("/invitation#"),
		press("Ada"), see("everything, including members and settings"), press("Edit"), fill("Name", "Ada Byron"), w.judged("member-edit"), press("Save the member"), see("Ada Byron"),
		press("Reset the password"), see("a new password"), press("Reset the password"), see("/invitation#"), read("[data-secret]", &reset), kept, miss("/invitation#"),
	)
	if err != nil {
		return fmt.Errorf("members: %w", err)
	}
	members, err := w.at(ctx)
	if err != nil {
		return err
	}
	for _, s := range []screen{
		{"members", members, "main tbody tr"},
		{"password-reset", strings.TrimPrefix(reset, w.url), "main form"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	err = do(ctx,
		w.to("/settings/members"), press("Revoke the invitation of bea@example.com"), see("no longer be accepted"), press("Revoke"), miss("bea@example.com"),
		press("Revoke"), see("no longer be accepted"), press("Revoke"), see("No invitation is pending"),
		w.to("/settings/tenant"), fill("Name", "Walked"), fill("Grace, in hours", "96"), press("Strict"),
		see("close 96 hours after their end"), see("are rejected"), w.judged("tenant-changed"), press("Save the settings"), miss("close 96 hours"), see("Walked"),
		press("Strict"), press("Save the settings"), miss("creates its customer"),
		w.to("/settings/single-sign-on"), fill("Issuer", w.issuer), fill("Client ID", "odometer"), fill("Client secret", "hush"), press("Save the issuer"), see("with a client secret"),
	)
	if err != nil {
		return fmt.Errorf("tenant: %w", err)
	}
	for _, s := range []screen{
		{"tenant", "/settings/tenant", "main form"},
		{"single-sign-on", "/settings/single-sign-on", "main dl"},
		{"you", "/settings/you", "main form"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	err = do(ctx,
		w.to("/settings/single-sign-on"), press("Delete the issuer"), see("can no longer sign in at"), press("Delete the issuer"), miss("can no longer sign in at"), miss("with a client secret"),
		w.to("/settings/audit-log"), fill("Action", "tenant."), press("Show"), see("tenant.update"), press("tenant.update"), see("IP address"),
	)
	if err != nil {
		return fmt.Errorf("audit log: %w", err)
	}
	log, err := w.at(ctx)
	if err != nil {
		return err
	}
	for _, s := range []screen{
		{"audit-log", "/settings/audit-log", "main tbody tr"},
		{"audit-log-opened", log, "main dl"},
		{"audit-log-empty", "/settings/audit-log?actor=nobody", "main h2"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	err = do(ctx, w.to("/settings/you"), onPhone, press("Settings"), see("API reference"), w.judged("navigation"), press("Meters"), see("Create a meter"), miss("API reference"))
	if err != nil {
		return fmt.Errorf("on a phone: %w", err)
	}
	const another = "quite another staple of horses"
	return do(ctx,
		w.to("/settings/you"), fill("Current password", w.password), fill("New password", another), press("Change the password"), see("The password is changed"),
		fill("Current password", another), fill("New password", w.password), press("Change the password"), miss("The password is changed"), see("The password is changed"),
		w.menu, press("Another tenant"), see("Your password"), w.judged("another-tenant"), fill("Your password", w.password), press("Show my tenants"), see("accepts this password"), press("Close"), miss("accepts this password"),
		forgetSession, w.signIn, w.to("/settings/you"), press("End"), see("The browser that uses it is signed out"), w.judged("session-end"), press("End"), miss("The browser that uses it is signed out"),
		press("Sign out everywhere"), see("including this one"), press("Sign out everywhere"), see("Sign in"), w.signIn,
	)
}

// forgetSession clears the cookies without ending the session, so that it appears as a session of another
// browser.
func forgetSession(ctx context.Context) error {
	if err := chromedp.Do(ctx, chromedp.Navigate("about:blank")); err != nil { // it sends no request without the session
		return err
	}
	return clearCookies(ctx)
}
