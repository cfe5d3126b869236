package activities

import (
	"context"
	"errors"
	"slices"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// tellAll tells the provider everything that is new about a customer, and keeps a
// record of it if that was anything.
func (c *chunk) tellAll(ctx context.Context, customer metering.CustomerID) (sent int, err error) {
	began := c.now()
	if err := c.readItems(ctx, ReadItemsInput{c.tenant, customer}); err != nil {
		return 0, err
	}
	after, err := c.store.Ledger.LastEntry(ctx, c.tenant, customer)
	if err != nil {
		return 0, err
	}
	var answer db.Answer
	for {
		prepared, err := c.store.Ledger.PrepareEntries(ctx, c.tenant, customer, after, c.providers.Frame, c.now())
		if metering.CodeOf(err) == metering.CodeConflict { // linked elsewhere since its items were read
			return sent, metering.Errorf(metering.CodeProviderRefuse, "the customer's link to the provider has changed").Because(errors.Join(err, providers.OwnRefusal{}))
		}
		if err != nil {
			return sent, err
		}
		open := slices.DeleteFunc(prepared.Send, func(e db.Entry) bool { return slices.Contains(answer.Entries, e.ID) })
		if len(open) == 0 {
			answer.Entries, answer.Skipped = append(answer.Entries, prepared.UpToDate...), prepared.Skipped
			break
		}
		for _, entry := range open {
			if err := c.tellOne(ctx, entry.ID); err != nil {
				return sent, err
			}
			answer.Entries = append(answer.Entries, entry.ID)
			sent++
		}
	}
	if _, err := c.confirmEntries(ctx, ConfirmEntriesInput{c.tenant, customer}); err != nil && metering.CodeOf(err) != metering.CodeProviderDown {
		return sent, err
	}
	if sent == 0 {
		return 0, nil
	}
	return sent, c.record(ctx, customer, answer, began)
}

// tellOne sends an entry and settles it. What is refused is settled by the run
// that the customer gets.
func (c *chunk) tellOne(ctx context.Context, entry uuid.UUID) error {
	result, err := c.sendEntry(ctx, SendEntryInput{c.tenant, entry})
	if metering.CodeOf(err) == metering.CodeConflict {
		return nil // somebody else has settled it
	}
	if err != nil {
		return err
	}
	if err := c.settleEntry(ctx, SettleEntryInput{c.tenant, entry, result.Outcome, result.Answer}); err != nil {
		return err
	}
	if result.Outcome == metering.EntryAmbiguous {
		return metering.Errorf(metering.CodeProviderRefuse, "%s", result.Answer).Because(providers.OwnRefusal{})
	}
	return nil
}
