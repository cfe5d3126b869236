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

// ReadItems reads what the customer is subscribed to at Stripe, and keeps
// where the usage of each meter goes.
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
		if items, err = a.stripe.Items(ctx, key, wanted.Customer); err != nil {
			return patient(unnamed(err))
		}
	}
	route(&link, items, wanted)
	return a.store.Links.Save(ctx, in.TenantID, in.CustomerID, link, readAt)
}

var errReplaced = metering.Errorf(metering.CodeConflict, "the billing provider was replaced; sync again")

// unnamed says what is wrong where Stripe does not know the customer.
func unnamed(err error) error {
	if stripe.AnswerOf(err).Code != "resource_missing" {
		return err
	}
	return metering.Errorf(metering.CodeProviderRefuse, "the customer's billing_provider_id names no customer of Stripe's; correct it").Because(err)
}

// patient makes Temporal wait for as long as Stripe asked.
func patient(err error) error {
	var coded *metering.Error
	wait := stripe.AnswerOf(err).RetryAfter
	if wait == 0 || !errors.As(err, &coded) {
		return err
	}
	return coded.Because(errors.Join(err, patience{wait}))
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
}

// PrepareEntriesResult is what there is to send, if anything.
type PrepareEntriesResult struct {
	Send     []Entry     `json:"send"`
	UpToDate []uuid.UUID `json:"up_to_date"`
	Skipped  []Skipped   `json:"skipped"`
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
	for _, s := range prepared.Skipped {
		out.Skipped = append(out.Skipped, Skipped{s.MeterID, s.Reason})
	}
	for _, e := range prepared.Send {
		out.Send = append(out.Send, Entry{e.ID, e.Meter, e.Mechanism, e.Quantity, e.Period.Start, e.Period.End, e.Deadline})
	}
	return out, nil
}

// SendEntryInput names the entry to send.
type SendEntryInput struct {
	TenantID metering.TenantID `json:"tenant_id"`
	EntryID  uuid.UUID         `json:"entry_id"`
}

// SendEntryResult is what came of it.
type SendEntryResult struct {
	Outcome metering.EntryStatus `json:"outcome"` // acknowledged or ambiguous
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
	result, err := a.tell(ctx, in, sending, now)
	if err == nil {
		return result, nil
	}
	var coded *metering.Error
	text := "the entry could not be sent"
	if errors.As(err, &coded) {
		text = coded.Message
	}
	answer := stripe.AnswerOf(err)
	stuck := answer.Replayed && answer.Status >= 500 && sending.Call.Mechanism.Overwrites()
	released := a.store.Ledger.ReleaseEntry(context.WithoutCancel(ctx), in.TenantID, in.EntryID, sending.Attempt, text, stuck)
	return SendEntryResult{}, errors.Join(patient(err), released)
}

func (a *Activities) tell(ctx context.Context, in SendEntryInput, s db.Sending, now time.Time) (SendEntryResult, error) {
	key, err := a.open(in.TenantID, s.Provider)
	if err != nil {
		return SendEntryResult{}, err
	}
	if !s.Call.Mechanism.Overwrites() && now.Sub(s.FirstSentAt) > certain {
		found, err := a.look(ctx, in, s, key)
		if err != nil || found.Outcome != "" {
			return found, err
		}
	}
	answer, err := a.stripe.Send(ctx, key, entryOf(s))
	switch {
	case err == nil && answer.Duplicate:
		return SendEntryResult{metering.EntryAcknowledged, "Stripe had it already"}, nil
	case err == nil:
		return SendEntryResult{metering.EntryAcknowledged, fmt.Sprintf("Stripe answered %d", answer.Status)}, nil
	case answer.Replayed && answer.Status >= 500 && !s.Call.Mechanism.Overwrites():
		found, unread := a.look(ctx, in, s, key)
		if unread == nil && found.Outcome == metering.EntryAcknowledged {
			return found, nil
		}
	}
	return SendEntryResult{}, err
}

// look asks Stripe what it has counted: the entry with what came before it, or
// only that. Where it is neither, somebody else writes to the same meter, and
// the entry is ambiguous.
func (a *Activities) look(ctx context.Context, in SendEntryInput, s db.Sending, key string) (SendEntryResult, error) {
	before, err := a.store.Ledger.BeforeEntry(ctx, in.TenantID, in.EntryID)
	if err != nil {
		return SendEntryResult{}, err
	}
	counted, err := a.stripe.Summary(ctx, key, s.Call.Target, s.Call.Customer, before.Range.Start, before.Range.End)
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
	return stripe.Entry{
		Mechanism: c.Mechanism, ItemID: c.ItemID, EventName: c.EventName, CustomerKey: c.CustomerKey, ValueKey: c.ValueKey,
		Customer: c.Customer, Value: c.Quantity, Timestamp: c.Timestamp, Identifier: s.Identifier, IdempotencyKey: s.IdempotencyKey,
	}
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
	return a.store.Ledger.SettleEntry(ctx, in.TenantID, in.EntryID, in.Outcome, in.Answer, a.now())
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
}

// ConfirmEntries looks for what Stripe acknowledged in what it has counted.
// Its summaries are some minutes behind.
func (a *Activities) ConfirmEntries(ctx context.Context, in ConfirmEntriesInput) (ConfirmEntriesResult, error) {
	defer alive(ctx)()
	return a.confirmEntries(ctx, in)
}

func (a *Activities) confirmEntries(ctx context.Context, in ConfirmEntriesInput) (ConfirmEntriesResult, error) {
	open, err := a.store.Ledger.Unconfirmed(ctx, in.TenantID, in.CustomerID)
	if err != nil || len(open) == 0 {
		return ConfirmEntriesResult{}, err
	}
	provider, err := a.store.Providers.Active(ctx, in.TenantID)
	if err != nil {
		return ConfirmEntriesResult{}, err
	}
	key, err := a.open(in.TenantID, provider)
	if err != nil {
		return ConfirmEntriesResult{}, err
	}
	var result ConfirmEntriesResult
	for _, place := range open {
		counted, err := a.counted(ctx, key, place)
		if err != nil {
			return result, patient(err)
		}
		if !counted.Equal(place.Total) {
			result.Behind++
			continue
		}
		if err := a.store.Ledger.Confirm(ctx, in.TenantID, place.Entries); err != nil {
			return result, err
		}
		result.Confirmed++
	}
	return result, nil
}

func (a *Activities) counted(ctx context.Context, key string, c db.Counted) (metering.Decimal, error) {
	if c.Mechanism == metering.UsageRecord {
		return a.stripe.RecordSummary(ctx, key, c.Target, stripe.RecordTime(c.Range.Start))
	}
	return a.stripe.Summary(ctx, key, c.Target, c.Customer, c.Range.Start, c.Range.End)
}
