package main

import "context"

// start follows the first steps: it creates a key and checks that the page shows an event that is sent with
// it.
func (w walk) start(ctx context.Context) error {
	err := do(ctx,
		w.to("/developers/api-keys"), press("First steps"), see("Connect a provider"),
		press("Create a key"), see("It is shown only once"), w.send(`{"customer_id":"first","event_type":"begun","idempotency_key":"first"}`), see("The newest event has the type"),
	)
	if err != nil {
		return err
	}
	return w.judgeScreen(ctx, screen{"start", "/start", "main ol li"})
}
