package main

import "context"

// events searches for an event, opens it, pauses the live list, and dismisses a conflict.
func (w walk) events(ctx context.Context) error {
	err := do(ctx,
		w.to("/events"), see("refreshed every 2 seconds"), see("customer-00"),
		fill("Idempotency key", "none-has-this"), press("Search"), see("No event has this key"), w.judged("events-none"),
		fill("Idempotency key", "a"), press("Search"), see("customer-00"), press("call"), see("Properties"), see("api-calls"), w.judged("event"),
		fill("Customer", "nobody"), press("Search"), see("There is no customer nobody"), w.refused("/v1/events"), w.to("/events"),
		press("Pause"), see("paused"), press("Resume"), see("refreshed every 2 seconds"),
		onPhone, press("Search events"), fill("Idempotency key", "a"), press("Search"), see("customer-00"), w.judged("events-phone"), w.to("/events"),
		press("call"), press("Address of this event"), see("Properties"),
	)
	if err != nil {
		return err
	}
	event, err := w.at(ctx)
	if err != nil {
		return err
	}
	for _, s := range []screen{
		{"events", "/events", "tbody tr a"},
		{"event-alone", event, "main dl"},
		{"events-rejected", "/events/rejected", "main h2"},
		{"events-rejected-today", "/events/rejected?days=1", "main h2"},
		{"event-conflicts", "/events/conflicts", "tbody tr"},
	} {
		if err := w.judgeScreen(ctx, s); err != nil {
			return err
		}
	}
	return do(ctx,
		w.to("/events/conflicts"), see("customer-01"), press("Find it"), see("customer-00"), press("Dismiss"), see("is not counted"), fill("Reason, for the audit log", "sent again"), w.judged("conflict-dismiss"),
		press("Dismiss"), see("No event reuses a key"),
	)
}
