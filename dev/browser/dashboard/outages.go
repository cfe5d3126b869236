package main

import (
	"context"
	"fmt"
	"net/http"
)

// outages does the steps of an operator about failed syncs of the newcomer's customer: Stripe refuses
// requests, returns errors, and leaves outcomes unknown.
func (w walk) outages(ctx context.Context, mark string) error {
	customer := "first-" + mark
	sync := func(ctx context.Context) error {
		return do(ctx, w.use(customer, "call_"+mark, "10"), w.to("/customers"), press(customer), see("Invoices"), press("Bill"), press("Sync now"))
	}
	err := do(ctx,
		w.behave(`{"status":401,"times":1000000}`), sync, see("failed"), press("This sync"), see("What to do"), w.here("sync-failed", "main dl"),
		w.behave(`{"times":0}`), w.to("/overview"), press("Sync again"), miss("Sync again"),
		w.to("/billing/syncs?status=failed"), press(customer), press("Sync again"), see("succeeded"),
	)
	if err != nil {
		return fmt.Errorf("a refusal: %w", err)
	}
	err = do(ctx,
		w.behave(`{"status":503,"times":1000000}`), sync, see("tried again"), w.judged("bill-waiting"), press("This sync"), see("Last error"),
		press("Pause"), fill("Reason", "Stripe does not"), syncAnswered, holds("Reason", "Stripe does not"), press("Back"), see("are not saved"), press("Discard"), miss("are not saved"), w.here("sync-waiting", "main dl"),
		w.to("/billing/syncs"), press(customer),
		press("Pause"), see("until the customer is resumed"), fill("Reason", "Stripe is asked"), w.judged("sync-pause"), press("Pause"), see("Stripe is asked by"), w.here("sync-paused", "main dl"),
		press("Resume"), see("that are still to be sent"), fill("Reason", "Stripe has answered"), press("Resume"), miss("that are still to be sent"), miss("Stripe is asked by"),
		press("Retry"), see("is sent now"), fill("Reason", "Stripe has answered"), press("Retry"), miss("is sent now"),
		press("Cancel"), see("The sync ends as failed"), fill("Reason", "it is begun anew"), w.judged("sync-cancel"), press("Cancel the sync"), miss("The sync ends as failed"), see("What to do"), w.here("sync-canceled", "main dl"),
		w.behave(`{"times":0}`), press("Sync again"), see("succeeded"),
	)
	if err != nil {
		return fmt.Errorf("an outage: %w", err)
	}
	if err := w.doubts(ctx, mark, sync); err != nil {
		return fmt.Errorf("a report in doubt: %w", err)
	}
	return nil
}

// doubts decides on two reports. Their outcome is unknown, because the walk disconnects Stripe while the worker
// retries each report. Stripe has not accepted the first report and has accepted the second.
func (w walk) doubts(ctx context.Context, mark string, sync act) error {
	for _, doubt := range []struct{ verb, warns, state, answers string }{
		{"Reject", "billed twice", "rejected", `{"status":503,"times":1000000,"path":"/v1/subscription_items/"}`},
		{"Accept", "is not sent again", "accepted", `{"status":503,"times":1000000,"path":"/v1/subscription_items/","done":true}`},
	} {
		// A new sync would join a run that is still open, and the screen would show an earlier attempt of that
		// run.
		if err := do(ctx, w.reread("/billing/syncs?status=running", "No sync is running"), w.behave(doubt.answers), sync, see("tried again")); err != nil {
			return err
		}
		bill, err := w.at(ctx)
		if err != nil {
			return err
		}
		name := "report-" + doubt.state
		err = do(ctx,
			w.to("/billing/provider"), press("Disconnect"), see("no longer billed"), press("Disconnect"), see("No provider is connected"),
			w.reread(bill, "unknown outcome"), w.here(name+"-in-doubt", "tfoot td"),
			press(doubt.verb), see(doubt.warns), fill("Evidence", "the list at Stripe"), w.judged(name), press(doubt.verb), miss(doubt.warns), miss("unknown outcome"), see(doubt.state),
			w.behave(`{"times":0}`), w.to("/billing/provider"), w.connectStripe(mark),
		)
		if err != nil {
			return fmt.Errorf("%s: %w", doubt.verb, err)
		}
	}
	return nil
}

// behave sets the failures of the fake of Stripe, or ends them.
func (w walk) behave(how string) act {
	return func(ctx context.Context) error {
		return w.fake(ctx, http.MethodPost, "/behave", how, nil)
	}
}
