package main

import (
	"context"
	"fmt"
)

// developers creates, rotates and revokes API keys and HMAC secrets, and sends messages to a webhook.
func (w walk) developers(ctx context.Context) error {
	for _, kind := range []struct{ name, thing, submit string }{
		{"api-keys", "an API key", "Create the key"},
		{"hmac-secrets", "an HMAC secret", "Create the secret"},
	} {
		err := do(ctx,
			w.to("/developers/"+kind.name),
			press("Create "+kind.thing), fill("Name", "checkout"), choose("Expires", "In 90 days"), w.judged(kind.name+"-make"), press(kind.submit),
			see("It is shown only once"), w.judged(kind.name+"-made"), kept, see("checkout"),
			press("Rotate"), see("A new "), w.judged(kind.name+"-rotate"), press("Rotate"),
			see("It is shown only once"), kept, see("replaced"),
			press("Revoke"), see("get 401"), press("Revoke"), miss("get 401"),
			press("Revoke"), see("get 401"), press("Revoke"), miss("replaced"), press("Show"), see("revoked"),
		)
		if err != nil {
			return fmt.Errorf("%s: %w", kind.name, err)
		}
	}
	err := do(ctx,
		w.to("/developers/webhooks"),
		press("Create a webhook"), fill("URL", "http://127.0.0.1:9/messages"), fill("Description", "the incident channel"), press("discrepancy.detected"),
		w.judged("webhook-make"), press("Create the webhook"), see("It is shown only once"), kept,
		press("the incident channel"), see("No messages yet"),
		press("Send a test message"), press("webhook.test"), see(`"webhook_id"`), press("Redeliver"),
		press("Edit"), fill("Description", "the channel for incidents"), press("Save the webhook"), see("the channel for incidents"),
		press("Rotate"), choose("The old one expires", "In an hour"), press("Rotate"), see("It is shown only once"), kept, see("the previous secret"),
		press("Disable"), see("Waiting messages are not delivered"), press("Disable"), see("disabled"), press("Enable"), see("enabled"),
	)
	if err != nil {
		return fmt.Errorf("webhooks: %w", err)
	}
	webhook, err := w.at(ctx)
	if err != nil {
		return err
	}
	for _, s := range []screen{
		{"api-keys", "/developers/api-keys?ended=shown", "tbody tr"},
		{"hmac-secrets", "/developers/hmac-secrets?ended=shown", "tbody tr"},
		{"webhooks", "/developers/webhooks", "tbody tr"},
		{"webhook", webhook, "main pre"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	return do(ctx, w.to(webhook), press("Delete"), see("its delivery history is deleted"), press("Delete"), see("No webhooks yet"))
}
