package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers/stripe"
)

// entryLease outlasts a call to Stripe, so that nobody sends an entry while
// another still does.
const entryLease = stripe.Timeout + 5*time.Second

// certain is how long Stripe surely remembers what it was told: less than the
// 24 hours that it promises.
const certain = 23 * time.Hour

// ReadItemsInput names the customer whose usage is to be told.
type ReadItemsInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	CustomerID metering.CustomerID `json:"customer_id"`
}

// ReadItems reads what the customer is subscribed to at Stripe, keeps where
// the usage of each meter goes, and looks for what was told before.
func (a *Activities) ReadItems(ctx context.Context, in ReadItemsInput) error {
	defer alive(ctx)()
	return a.readItems(ctx, in)
}

func (a *Activities) readItems(ctx context.Context, in ReadItemsInput) error {
	readAt := a.now()
	wanted, err := a.store.Links.Wanted(ctx, in.TenantID, in.CustomerID)
	if err != nil {
		return err
	}
	if wanted.Provider.Kind != metering.Stripe {
		return errReplaced
	}
	link := metering.Link{Account: wanted.Provider.Account, Customer: wanted.Customer}
	var items []stripe.Item
	if wanted.Customer != "" {
		key, err := a.open(in.TenantID, wanted.Provider)
		if err != nil {
			return err
		}
		items, err = measured(a.metrics, metering.Stripe, func() ([]stripe.Item, error) { return a.stripe.Items(ctx, key, wanted.Customer) })
		if err != nil {
			return withRetryAfter(unnamed(err))
		}
	}
	route(&link, items, wanted)
	if err := a.store.Links.Save(ctx, in.TenantID, in.CustomerID, link, readAt); err != nil {
		return err
	}
	_, err = a.confirmEntries(ctx, ConfirmEntriesInput(in)) // what Stripe has dropped is told again
	return err
}

var errReplaced = metering.Errorf(metering.CodeConflict, "the billing provider was replaced; sync again")

// unnamed says what is wrong where Stripe does not know the customer.
func unnamed(err error) error {
	if stripe.AnswerOf(err).Code != "resource_missing" {
		return err
	}
	return metering.Errorf(metering.CodeProviderRefuse, "the customer's billing_provider_id names no customer of Stripe's; correct it").Because(err)
}

// withRetryAfter makes Temporal wait for as long as Stripe asked.
func withRetryAfter(err error) error {
	var coded *metering.Error
	wait := stripe.AnswerOf(err).RetryAfter
	if wait == 0 || !errors.As(err, &coded) {
		return err
	}
	return coded.Because(errors.Join(err, retryAfter{wait}))
}

// open returns the provider's key.
func (a *Activities) open(tenant metering.TenantID, p metering.Provider) (string, error) {
	secret, err := a.keyring.Open(tenant, db.ProviderSecret, p.SealedSecret)
	if err != nil {
		return "", metering.Errorf(metering.CodeProviderRefuse,
			"the provider's secret cannot be opened with this worker's keys; save the provider again").Because(err)
	}
	return string(secret), nil
}

// route finds the place of each meter. The customer's periods are those of the
// first meter's subscription; what another subscription bills in other periods
// cannot be told.
func route(link *metering.Link, items []stripe.Item, wanted db.Wanted) {
	for _, meter := range wanted.Meters {
		item, reason := place(items, meter, wanted)
		at := metering.Range{Start: item.PeriodStart, End: item.PeriodEnd}
		switch {
		case reason != "":
		case link.Subscription == "":
			link.Subscription, link.Period = item.SubscriptionID, at
		case link.Period != at:
			reason = fmt.Sprintf("subscription %s has other periods than %s, which the customer's other meters are on", item.SubscriptionID, link.Subscription)
		}
		if reason != "" {
			link.Items = append(link.Items, metering.Item{MeterID: meter.ID, Skipped: reason})
			continue
		}
		link.Items = append(link.Items, itemOf(meter, item))
	}
}

func place(items []stripe.Item, meter metering.Meter, wanted db.Wanted) (stripe.Item, string) {
	if wanted.Customer == "" {
		return stripe.Item{}, "the customer has no billing_provider_id; set it to the customer's id at Stripe"
	}
	if wanted.Shared {
		return stripe.Item{}, "another customer has the same billing_provider_id; each needs its own"
	}
	item, reason := stripe.Match(items, meter.Slug, wanted.Provider.Mapping)
	if reason == "" {
		_, reason = item.Mechanism()
	}
	return item, reason
}

func itemOf(meter metering.Meter, item stripe.Item) metering.Item {
	mechanism, _ := item.Mechanism()
	target := item.MeterID
	if mechanism == metering.UsageRecord {
		target = item.ItemID
	}
	return metering.Item{
		MeterID: meter.ID, Mechanism: mechanism, Target: target, ItemID: item.ItemID, Window: metering.Granularity(item.EventTimeWindow),
		EventName: item.MeterEventName, CustomerKey: item.CustomerKey, ValueKey: item.ValueKey,
	}
}

// PrepareEntriesInput names the customer and the pass.
type PrepareEntriesInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	CustomerID metering.CustomerID `json:"customer_id"`
	After      int64               `json:"after"`
	Hold       []metering.MeterID  `json:"hold,omitempty"` // meters that stay as the provider knows them
	Syncs      []uuid.UUID         `json:"syncs"`          // that are told which meters are left out
}

// PrepareEntriesResult is what there is to send, if anything. Why meters are
// left out stays in the database: it names what is the customer's at Stripe.
type PrepareEntriesResult struct {
	Send     []Entry     `json:"send"`
	UpToDate []uuid.UUID `json:"up_to_date"`
}

// Entry names what is to be told of one meter; to whom stays in the database.
type Entry struct {
	ID          uuid.UUID          `json:"id"`
	MeterID     metering.MeterID   `json:"meter_id"`
	Mechanism   metering.Mechanism `json:"mechanism"`
	Quantity    metering.Decimal   `json:"quantity"`
	PeriodStart time.Time          `json:"period_start"`
	PeriodEnd   time.Time          `json:"period_end"`
	Deadline    time.Time          `json:"deadline"`
}

// PrepareEntries writes down what the provider is to be told next.
func (a *Activities) PrepareEntries(ctx context.Context, in PrepareEntriesInput) (PrepareEntriesResult, error) {
	defer alive(ctx)()
	prepared, err := a.store.Ledger.PrepareEntries(ctx, in.TenantID, in.CustomerID, in.After, stripe.Timestamp, a.now(), in.Hold...)
	if err != nil {
		return PrepareEntriesResult{}, err
	}
	out := PrepareEntriesResult{UpToDate: prepared.UpToDate}
	for _, e := range prepared.Send {
		out.Send = append(out.Send, Entry{e.ID, e.Meter, e.Mechanism, e.Quantity, e.Period.Start, e.Period.End, e.Deadline})
	}
	return out, a.store.Syncs.Skip(ctx, in.TenantID, in.Syncs, prepared.Skipped)
}

// SendEntryInput names the entry to send.
type SendEntryInput struct {
	TenantID metering.TenantID `json:"tenant_id"`
	EntryID  uuid.UUID         `json:"entry_id"`
}

// SendEntryResult is what came of it.
type SendEntryResult struct {
	Outcome metering.EntryStatus `json:"outcome"` // acknowledged, ambiguous, or rejected because it came too late
	Answer  string               `json:"answer"`
}

// SendEntry tells Stripe an entry as it was written down. That it may have
// been sent is committed first. What may have arrived longer ago than Stripe
// remembers is looked for before it is sent again.
func (a *Activities) SendEntry(ctx context.Context, in SendEntryInput) (SendEntryResult, error) {
	defer alive(ctx)()
	return a.sendEntry(ctx, in)
}

func (a *Activities) sendEntry(ctx context.Context, in SendEntryInput) (SendEntryResult, error) {
	now := a.now()
	sending, err := a.store.Ledger.MarkEntrySent(ctx, in.TenantID, in.EntryID, now, entryLease)
	if err != nil {
		return SendEntryResult{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, entryLease-time.Second)
	defer cancel()
	result, newKey, err := a.tell(ctx, in, sending, now)
	if err == nil {
		return result, nil
	}
	var coded *metering.Error
	text := "the entry could not be sent"
	if errors.As(err, &coded) {
		text = coded.Message
	}
	released := a.store.Ledger.ReleaseEntry(context.WithoutCancel(ctx), in.TenantID, in.EntryID, sending.Attempt, text, newKey)
	return SendEntryResult{}, errors.Join(withRetryAfter(err), released)
}

// tell sends an entry, or finds that it was taken. Its error is to be tried
// again under a newKey where Stripe would repeat its answer to this one.
func (a *Activities) tell(ctx context.Context, in SendEntryInput, s db.Sending, now time.Time) (result SendEntryResult, newKey bool, err error) {
	key, err := a.open(in.TenantID, s.Provider)
	if err != nil {
		return SendEntryResult{}, false, err
	}
	overdue := s.Invoiced && s.Call.Mechanism != metering.InvoiceItem
	if overdue && s.Attempt == 1 {
		return SendEntryResult{metering.EntryRejected, "the invoice is final: it is late usage"}, false, nil
	}
	adds := !s.Call.Mechanism.Overwrites()
	if adds && now.Sub(s.FirstSentAt) > certain {
		found, err := a.look(ctx, in, s, key)
		if err != nil || found.Outcome != "" {
			return found, false, err
		}
	}
	answer, err := measured(a.metrics, metering.Stripe, func() (stripe.Answer, error) { return a.stripe.Send(ctx, key, entryOf(s)) })
	switch {
	case err == nil && answer.Duplicate:
		return SendEntryResult{metering.EntryAcknowledged, "Stripe had it already"}, false, nil
	case err == nil && overdue && !answer.Replayed && now.Sub(s.FirstSentAt) <= certain:
		return SendEntryResult{metering.EntryRejected, "Stripe took it once the invoice was final, so that it is on none: it is late usage"}, false, nil
	case err == nil:
		return SendEntryResult{metering.EntryAcknowledged, fmt.Sprintf("Stripe answered %d", answer.Status)}, false, nil
	case !answer.Replayed || answer.Status < 500:
		return SendEntryResult{}, false, err
	case !adds:
		return SendEntryResult{}, true, err
	}
	found, unread := a.look(ctx, in, s, key)
	if unread == nil && found.Outcome == metering.EntryAcknowledged {
		return found, false, nil
	}
	return SendEntryResult{}, unread == nil && s.Call.Mechanism == metering.InvoiceItem, err
}

// look asks Stripe what it has taken. An invoice item is there or it is not. Of
// usage it has counted the entry with what came before it, or only that; where
// it is neither, somebody else writes to the same meter, and the entry is
// ambiguous.
func (a *Activities) look(ctx context.Context, in SendEntryInput, s db.Sending, key string) (SendEntryResult, error) {
	if s.Call.Mechanism == metering.InvoiceItem {
		found, err := measured(a.metrics, metering.Stripe, func() (bool, error) {
			return a.stripe.InvoiceItem(ctx, key, s.Call.Customer, s.Identifier, s.FirstSentAt)
		})
		if err != nil || !found {
			return SendEntryResult{}, err
		}
		return SendEntryResult{metering.EntryAcknowledged, "seen among the customer's invoice items"}, nil
	}
	before, err := a.store.Ledger.BeforeEntry(ctx, in.TenantID, in.EntryID)
	if err != nil {
		return SendEntryResult{}, err
	}
	counted, err := a.counted(ctx, key, db.Counted{Mechanism: s.Call.Mechanism, Target: s.Call.Target, Customer: s.Call.Customer, Range: before.Range})
	switch {
	case err != nil:
		return SendEntryResult{}, err
	case counted.Equal(before.Total.Add(s.Call.Quantity)):
		return SendEntryResult{metering.EntryAcknowledged, "seen in what Stripe has counted"}, nil
	case counted.Equal(before.Total):
		return SendEntryResult{}, nil
	}
	return SendEntryResult{metering.EntryAmbiguous, fmt.Sprintf(
		"it may have arrived: Stripe has counted %s, where %s or %s were expected; see whether something else reports to the same meter",
		counted, before.Total, before.Total.Add(s.Call.Quantity))}, nil
}

func entryOf(s db.Sending) stripe.Entry {
	c := s.Call
	e := stripe.Entry{
		Mechanism: c.Mechanism, ItemID: c.ItemID, EventName: c.EventName, CustomerKey: c.CustomerKey, ValueKey: c.ValueKey,
		Customer: c.Customer, Value: c.Quantity, Timestamp: c.Timestamp, Identifier: s.Identifier, IdempotencyKey: s.IdempotencyKey,
	}
	if c.Mechanism == metering.InvoiceItem {
		e.SubscriptionID, e.Currency, e.Description, e.Period = c.Target, c.Currency, c.Description, *c.Period
		e.Value = stripe.Smallest(c.Quantity, c.Currency)
	}
	return e
}

// SettleEntryInput is what came of an entry.
type SettleEntryInput struct {
	TenantID metering.TenantID    `json:"tenant_id"`
	EntryID  uuid.UUID            `json:"entry_id"`
	Outcome  metering.EntryStatus `json:"outcome"`
	Answer   string               `json:"answer"`
}

// SettleEntry records what came of an entry.
func (a *Activities) SettleEntry(ctx context.Context, in SettleEntryInput) error {
	defer alive(ctx)()
	return a.settleEntry(ctx, in)
}

func (a *Activities) settleEntry(ctx context.Context, in SettleEntryInput) error {
	err := a.store.Ledger.SettleEntry(ctx, in.TenantID, in.EntryID, in.Outcome, in.Answer, a.now())
	return a.metrics.settled("entry", string(in.Outcome), err)
}

// ConfirmEntriesInput names the customer.
type ConfirmEntriesInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	CustomerID metering.CustomerID `json:"customer_id"`
}

// ConfirmEntriesResult says what Stripe was seen to have counted.
type ConfirmEntriesResult struct {
	Confirmed int `json:"confirmed"` // places
	Behind    int `json:"behind"`    // places where Stripe's summaries say something else, as yet
	Dropped   int `json:"dropped"`   // places where Stripe took something and did not count it, which is to be told again
}

// ConfirmEntries looks for what Stripe acknowledged in what it has counted.
// Its summaries are some minutes behind. What they lack after a day, Stripe
// took and dropped: it checks meter events only after it has answered.
func (a *Activities) ConfirmEntries(ctx context.Context, in ConfirmEntriesInput) (ConfirmEntriesResult, error) {
	defer alive(ctx)()
	return a.confirmEntries(ctx, in)
}

func (a *Activities) confirmEntries(ctx context.Context, in ConfirmEntriesInput) (result ConfirmEntriesResult, err error) {
	open, err := a.store.Ledger.Unconfirmed(ctx, in.TenantID, in.CustomerID, a.now().Add(-certain))
	if err != nil || len(open) == 0 {
		return result, err
	}
	provider, err := a.store.Providers.Active(ctx, in.TenantID)
	if err != nil {
		return result, err
	}
	key, err := a.open(in.TenantID, provider)
	if err != nil {
		return result, err
	}
	for _, place := range open {
		counted, err := a.counted(ctx, key, place)
		if err != nil {
			return result, withRetryAfter(err)
		}
		if err := a.confirm(ctx, in.TenantID, place, counted, &result); err != nil {
			return result, err
		}
	}
	return result, nil
}

// confirm draws its conclusions from what Stripe has counted in a place. What
// is new may be in it or not; equal sums may be taken for each other.
func (a *Activities) confirm(ctx context.Context, tenant metering.TenantID, place db.Counted, counted metering.Decimal, result *ConfirmEntriesResult) error {
	withoutOld := counted.Equal(place.Seen) || counted.Equal(place.Total.Sub(place.Old))
	entries, seen, answer := place.Entries, metering.EntryConfirmed, "seen in what Stripe has counted"
	switch {
	case counted.Equal(place.Total):
		result.Confirmed++
	case len(place.OldEntries) > 0 && counted.Equal(place.Seen.Add(place.Old)):
		entries = place.OldEntries
		result.Confirmed++
	case len(place.OldEntries) > 0 && withoutOld:
		entries, seen, answer = place.OldEntries, metering.EntryRejected, "Stripe took it and did not count it: its dashboard lists the meter's errors"
		result.Dropped++
	default:
		seen, answer = metering.EntryAcknowledged, fmt.Sprintf("Stripe has counted %s of %s so far", counted, place.Total)
		result.Behind++
	}
	return a.store.Ledger.Confirm(ctx, tenant, entries, seen, answer)
}

func (a *Activities) counted(ctx context.Context, key string, c db.Counted) (metering.Decimal, error) {
	return measured(a.metrics, metering.Stripe, func() (metering.Decimal, error) {
		if c.Mechanism == metering.UsageRecord {
			return a.stripe.RecordSummary(ctx, key, c.Target, stripe.RecordTime(c.Range.Start))
		}
		return a.stripe.Summary(ctx, key, c.Target, c.Customer, c.Range.Start, c.Range.End)
	})
}
