package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

const (
	defaultSyncWait = 25 * time.Second
	syncPoll        = 100 * time.Millisecond
)

type syncEntry struct {
	MeterID   string               `json:"meter_id"`
	MeterSlug string               `json:"meter_slug"`
	Period    usagePeriod          `json:"period"`
	Usage     metering.Decimal     `json:"usage" doc:"Of the whole period so far"`
	UnitPrice metering.Decimal     `json:"unit_price"`
	Amount    metering.Decimal     `json:"amount" doc:"Charged for usage, rounded to the currency's minor unit; of an adjustment or invoice_item, what the closed period's charge grows by"`
	Currency  string               `json:"currency"`
	Status    metering.EntryStatus `json:"status"`
	Sequence  int64                `json:"sequence" doc:"Of the snapshot that carried it; 0 where each meter is reported by itself"`

	Mechanism string            `json:"mechanism" example:"snapshot" doc:"How it is reported: in a snapshot or its adjustment, as an invoice_item, or by one of the provider's own ways"`
	Item      string            `json:"item,omitempty" doc:"At the provider: the subscription item or the meter" example:"si_Na6dzxczY5fwHx"`
	Window    usagePeriod       `json:"window"` // the period, its part that lies in the subscription's, or one of the provider's windows
	Value     metering.Decimal  `json:"value" doc:"What the provider has counted with it in window: usage, rounded as the provider takes it, less what was reported elsewhere"`
	ValueSent *metering.Decimal `json:"value_sent,omitempty" doc:"The number that went out: value, or what it adds to the former one; of an invoice_item money"`
	Answer    string            `json:"answer" doc:"What came of it"`
}

type skippedMeter struct {
	MeterID   string `json:"meter_id"`
	MeterSlug string `json:"meter_slug"`
	Reason    string `json:"reason"`
}

type syncRun struct {
	ID          string              `json:"id"`
	Status      metering.SyncStatus `json:"status"`
	Trigger     metering.Trigger    `json:"trigger"`
	CustomerID  string              `json:"customer_id" example:"cus_42"`
	Problem     string              `json:"problem" doc:"Of a failed run: what to do"`
	RequestedAt time.Time           `json:"requested_at"`
	StartedAt   *time.Time          `json:"started_at"`
	FinishedAt  *time.Time          `json:"finished_at"`
	Entries     []syncEntry         `json:"entries"`
	Skipped     []skippedMeter      `json:"skipped"`
	StatusURL   string              `json:"status_url" doc:"Where the run can be read again"`
}

func showSync(run metering.Sync) syncRun {
	shown := syncRun{
		ID: run.ID.String(), Status: run.Status, Trigger: run.Trigger, CustomerID: run.CustomerID.String(), Problem: run.Problem,
		RequestedAt: run.RequestedAt.UTC(), StartedAt: run.StartedAt, FinishedAt: run.FinishedAt,
		Entries: []syncEntry{}, Skipped: []skippedMeter{}, StatusURL: "/v1/billing/syncs/" + run.ID.String(),
	}
	for _, e := range run.Entries {
		shown.Entries = append(shown.Entries, syncEntry{
			MeterID: e.MeterID.String(), MeterSlug: e.MeterSlug, Period: usagePeriod{e.Period.Start.UTC(), e.Period.End.UTC()},
			Usage: e.Usage, UnitPrice: e.UnitPrice, Amount: e.Amount, Currency: e.Currency, Status: metering.EntryStatus(e.Status), Sequence: e.Sequence,
			Mechanism: e.Mechanism, Item: e.Item, Window: usagePeriod{e.Window.Start.UTC(), e.Window.End.UTC()},
			Value: e.Value, ValueSent: e.Quantity, Answer: e.Answer,
		})
	}
	for _, m := range run.Skipped {
		shown.Skipped = append(shown.Skipped, skippedMeter{m.MeterID.String(), m.MeterSlug, m.Reason})
	}
	return shown
}

type syncBillingInput struct {
	Body struct {
		CustomerExternalID string `json:"customer_external_id" minLength:"1" maxLength:"255"`
	}
}

type syncOutput struct {
	Status int
	Body   syncRun
}

// syncBilling asks for a pass over the customer's usage and waits for it for
// a while. The request is a row first, so that it outlives this process; only
// if nobody can be told about it is it taken back.
func (s *server) syncBilling(ctx context.Context, in *syncBillingInput) (*syncOutput, error) {
	who := principalOf(ctx)
	c, err := s.customer(ctx, in.Body.CustomerExternalID)
	if err != nil {
		return nil, err
	}
	run, err := s.Store.Syncs.Request(ctx, who.Tenant.ID, who.Actor, c.ID, metering.Manual, s.Now())
	if err != nil {
		return nil, err
	}
	if err := workflows.StartSyncCustomer(ctx, s.Temporal, who.Tenant.ID, c.ID, metering.Manual); err != nil {
		s.withdraw(context.WithoutCancel(ctx), run)
		return nil, err
	}
	return s.awaitSync(ctx, run.ID)
}

func (s *server) withdraw(ctx context.Context, run metering.Sync) {
	if err := s.Store.Syncs.Withdraw(ctx, principalOf(ctx).Tenant.ID, run.ID); err != nil {
		s.Log.WarnContext(ctx, "withdraw sync", "sync", run.ID, "error", err)
	}
}

// awaitSync answers 200 with the finished run, or 202 while it goes on.
func (s *server) awaitSync(ctx context.Context, id uuid.UUID) (*syncOutput, error) {
	deadline := time.After(cmp.Or(s.SyncWait, defaultSyncWait))
	for {
		run, err := s.Store.Syncs.Get(ctx, principalOf(ctx).Tenant.ID, id)
		if err != nil {
			return nil, err
		}
		if run.Status.Done() {
			return &syncOutput{http.StatusOK, showSync(run)}, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-deadline:
			return &syncOutput{http.StatusAccepted, showSync(run)}, nil
		case <-s.Stopping:
			return &syncOutput{http.StatusAccepted, showSync(run)}, nil
		case <-time.After(syncPoll):
		}
	}
}

type getSyncInput struct {
	ID string `path:"id"`
}

func (s *server) getSync(ctx context.Context, in *getSyncInput) (*syncOutput, error) {
	id, err := uuid.Parse(in.ID)
	if err != nil {
		return nil, metering.Errorf(metering.CodeNotFound, "there is no such sync")
	}
	run, err := s.Store.Syncs.Get(ctx, principalOf(ctx).Tenant.ID, id)
	if err != nil {
		return nil, err
	}
	return &syncOutput{http.StatusOK, showSync(run)}, nil
}

type listSyncsInput struct {
	Paging
	Customer string              `query:"customer" maxLength:"255" doc:"The customer's external ID"`
	Status   metering.SyncStatus `query:"status"`
}

type listSyncsOutput struct{ Body List[syncRun] }

type syncCursor struct {
	Before uuid.UUID `json:"before"`
}

// listSyncs shows sync runs, newest first, each without its entries.
func (s *server) listSyncs(ctx context.Context, in *listSyncsInput) (*listSyncsOutput, error) {
	filter := db.SyncFilter{Status: in.Status}
	if in.Customer != "" {
		c, err := s.customer(ctx, in.Customer)
		if err != nil {
			return nil, err
		}
		filter.Customer = c.ID
	}
	var cursor syncCursor
	if err := s.readPageToken(ctx, in.PageToken, &cursor); err != nil {
		return nil, err
	}
	filter.Before = cursor.Before
	runs, err := s.Store.Syncs.List(ctx, principalOf(ctx).Tenant.ID, filter, in.PageSize+1)
	if err != nil {
		return nil, err
	}
	return &listSyncsOutput{listOf(ctx, s, runs, in.PageSize, showSync, func(r metering.Sync) syncCursor { return syncCursor{r.ID} })}, nil
}
