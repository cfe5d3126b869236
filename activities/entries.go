package activities

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// ReadItemsInput names the customer whose usage is to be told.
type ReadItemsInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	CustomerID metering.CustomerID `json:"customer_id"`
}

// ReadItems reads what the customer is at the provider, keeps where the usage
// of each meter goes, and looks for what was told before.
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
	if wanted.Provider.Statements {
		return errReplaced
	}
	side, err := a.readSide(ctx, in.TenantID, wanted)
	if err != nil {
		return err
	}
	if err := a.store.Links.Save(ctx, in.TenantID, in.CustomerID, wanted.Provider.Account, side, readAt); err != nil {
		return err
	}
	_, err = a.confirmEntries(ctx, ConfirmEntriesInput(in)) // what the provider has dropped is told again
	return err
}

func (a *Activities) readSide(ctx context.Context, tenant metering.TenantID, w db.Wanted) (billing.Side, error) {
	question := providers.Question{Customer: w.Customer, Shared: w.Shared, Meters: w.Meters, Mapping: w.Provider.Mapping}
	if w.Customer == "" { // no call is made
		p, err := a.providers.Of(w.Provider.Kind)
		if err != nil {
			return billing.Side{}, err
		}
		return p.Read(ctx, providers.Credentials{}, question)
	}
	p, err := a.open(tenant, w.Provider)
	if err != nil {
		return billing.Side{}, err
	}
	return measured(a.metrics, p.Kind, func() (billing.Side, error) { return p.Read(ctx, p.credentials, question) })
}

var errReplaced = metering.Errorf(metering.CodeConflict, "the billing provider was replaced; sync again")

// PrepareEntriesInput names the customer and the pass.
type PrepareEntriesInput struct {
	TenantID   metering.TenantID   `json:"tenant_id"`
	CustomerID metering.CustomerID `json:"customer_id"`
	After      int64               `json:"after"`
	Hold       []metering.MeterID  `json:"hold,omitempty"` // meters that stay as the provider knows them
	Syncs      []uuid.UUID         `json:"syncs"`          // that are told which meters are left out
}

// PrepareEntriesResult is what there is to send, if anything. Why meters are
// left out stays in the database: it names what is the customer's at the provider.
type PrepareEntriesResult struct {
	Send     []Entry     `json:"send"`
	UpToDate []uuid.UUID `json:"up_to_date"`
}

// Entry names what is to be told of one meter; to whom stays in the database.
type Entry struct {
	ID          uuid.UUID        `json:"id"`
	MeterID     metering.MeterID `json:"meter_id"`
	Method      billing.Method   `json:"mechanism"`
	Quantity    metering.Decimal `json:"quantity"`
	PeriodStart time.Time        `json:"period_start"`
	PeriodEnd   time.Time        `json:"period_end"`
	Deadline    time.Time        `json:"deadline"`
}

// PrepareEntries writes down what the provider is to be told next.
func (a *Activities) PrepareEntries(ctx context.Context, in PrepareEntriesInput) (PrepareEntriesResult, error) {
	defer alive(ctx)()
	prepared, err := a.store.Ledger.PrepareEntries(ctx, in.TenantID, in.CustomerID, in.After, a.providers.Frame, a.now(), in.Hold...)
	if err != nil {
		return PrepareEntriesResult{}, err
	}
	out := PrepareEntriesResult{UpToDate: prepared.UpToDate}
	for _, e := range prepared.Send {
		out.Send = append(out.Send, Entry{e.ID, e.Meter, e.Method, e.Quantity, e.Period.Start, e.Period.End, e.Deadline})
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

// SendEntry tells the provider an entry as it was written down. That it may have
// been sent is committed first. What may have arrived longer ago than the
// provider remembers is looked for before it is sent again.
func (a *Activities) SendEntry(ctx context.Context, in SendEntryInput) (SendEntryResult, error) {
	defer alive(ctx)()
	return a.sendEntry(ctx, in)
}

func (a *Activities) sendEntry(ctx context.Context, in SendEntryInput) (SendEntryResult, error) {
	now, lease := a.now(), a.lease()
	sending, err := a.store.Ledger.MarkEntrySent(ctx, in.TenantID, in.EntryID, now, lease)
	if err != nil {
		return SendEntryResult{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, lease-time.Second)
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
	return SendEntryResult{}, errors.Join(err, released)
}

// tell sends an entry, or finds that it was taken. Its error is to be tried
// again under a newKey where the provider would repeat its answer to this one.
func (a *Activities) tell(ctx context.Context, in SendEntryInput, s db.Sending, now time.Time) (result SendEntryResult, newKey bool, err error) {
	p, err := a.open(in.TenantID, s.Provider)
	if err != nil {
		return SendEntryResult{}, false, err
	}
	if s.Invoiced && s.Kind == billing.QuantityReport && s.Attempt == 1 {
		return SendEntryResult{metering.EntryRejected, "the invoice is final: it is late usage"}, false, nil
	}
	sending := providers.Sending{
		Series: s.Series, ReportID: in.EntryID, Body: s.Body, Revision: s.Revision, FirstSentAt: s.FirstSentAt, Invoiced: s.Invoiced, Now: now,
	}
	if s.Counting == billing.Adds && now.Sub(s.FirstSentAt) > p.Remembers {
		found, err := a.look(ctx, in, p, sending)
		if err != nil || found.Outcome != "" {
			return found, false, err
		}
	}
	outcome, _ := measured(a.metrics, p.Kind, func() (providers.Outcome, error) {
		outcome := p.Send(ctx, p.credentials, sending)
		return outcome, outcome.Err
	})
	if outcome.Err == nil {
		return SendEntryResult{statusOf[outcome.State], outcome.Answer}, false, nil
	}
	if !outcome.Look {
		return SendEntryResult{}, outcome.NewKey, outcome.Err
	}
	found, unread := a.look(ctx, in, p, sending)
	if unread == nil && found.Outcome == metering.EntryAcknowledged {
		return found, false, nil
	}
	return SendEntryResult{}, outcome.NewKey && unread == nil, outcome.Err
}

// statusOf is the status of an entry that is a report in this state.
var statusOf = map[billing.State]metering.EntryStatus{
	billing.Accepted: metering.EntryAcknowledged, billing.Rejected: metering.EntryRejected, billing.InDoubt: metering.EntryAmbiguous,
}

// look asks the provider whether it has taken an entry. Where it cannot tell,
// the entry is ambiguous.
func (a *Activities) look(ctx context.Context, in SendEntryInput, p called, s providers.Sending) (SendEntryResult, error) {
	var before db.Counted
	if s.Kind == billing.QuantityReport {
		var err error
		if before, err = a.store.Ledger.BeforeEntry(ctx, in.TenantID, in.EntryID); err != nil {
			return SendEntryResult{}, err
		}
	}
	found, err := measured(a.metrics, p.Kind, func() (providers.Found, error) {
		return p.Find(ctx, p.credentials, s, placeOf(before), before.Total)
	})
	return SendEntryResult{statusOf[found.State], found.Answer}, err
}

func placeOf(c db.Counted) providers.Place {
	return providers.Place{Method: c.Method, Target: c.Target, Customer: c.Customer, Range: c.Range}
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

// ConfirmEntriesResult says what the provider was seen to have counted.
type ConfirmEntriesResult struct {
	Confirmed int `json:"confirmed"` // places
	Behind    int `json:"behind"`    // places where the provider's summaries say something else, as yet
	Dropped   int `json:"dropped"`   // places where it took something and did not count it, which is to be told again
}

// ConfirmEntries looks for what the provider acknowledged in what it has
// counted, which may be behind. What is lacking once it should be there, the
// provider took and dropped: some check what they are told only after they have
// answered.
func (a *Activities) ConfirmEntries(ctx context.Context, in ConfirmEntriesInput) (ConfirmEntriesResult, error) {
	defer alive(ctx)()
	return a.confirmEntries(ctx, in)
}

func (a *Activities) confirmEntries(ctx context.Context, in ConfirmEntriesInput) (result ConfirmEntriesResult, err error) {
	active, err := a.store.Providers.Active(ctx, in.TenantID)
	if err != nil {
		return result, err
	}
	provider, err := a.providers.Of(active.Kind)
	if err != nil {
		return result, err
	}
	within := provider.Describe().CountsWithin
	if within == 0 {
		return result, nil
	}
	open, err := a.store.Ledger.Unconfirmed(ctx, in.TenantID, in.CustomerID, a.now().Add(-within))
	if err != nil || len(open) == 0 {
		return result, err
	}
	p, err := a.open(in.TenantID, active)
	if err != nil {
		return result, err
	}
	for _, place := range open {
		counted, err := measured(a.metrics, p.Kind, func() (metering.Decimal, error) { return p.Count(ctx, p.credentials, placeOf(place)) })
		if err != nil {
			return result, err
		}
		if err := a.confirm(ctx, in.TenantID, p.Name, place, counted, &result); err != nil {
			return result, err
		}
	}
	return result, nil
}

// confirm draws its conclusions from what the provider has counted in a place.
// What is new may be in it or not; equal sums may be taken for each other.
func (a *Activities) confirm(ctx context.Context, tenant metering.TenantID, who string, place db.Counted, counted metering.Decimal, result *ConfirmEntriesResult) error {
	withoutOld := counted.Equal(place.Seen) || counted.Equal(place.Total.Sub(place.Old))
	entries, seen, answer := place.Entries, metering.EntryConfirmed, fmt.Sprintf("seen in what %s has counted", who)
	switch {
	case counted.Equal(place.Total):
		result.Confirmed++
	case len(place.OldEntries) > 0 && counted.Equal(place.Seen.Add(place.Old)):
		entries = place.OldEntries
		result.Confirmed++
	case len(place.OldEntries) > 0 && withoutOld:
		entries, seen, answer = place.OldEntries, metering.EntryRejected, fmt.Sprintf("%s took it and did not count it: its dashboard lists the meter's errors", who)
		result.Dropped++
	default:
		seen, answer = metering.EntryAcknowledged, fmt.Sprintf("%s has counted %s of %s so far", who, counted, place.Total)
		result.Behind++
	}
	return a.store.Ledger.Confirm(ctx, tenant, entries, seen, answer)
}
