package api

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/workflows"
)

// syncPoll is the pause between two reads of the state of a sync for which a request waits.
const syncPoll = 100 * time.Millisecond

type syncLine struct {
	ReportID  string            `json:"report_id"`
	MeterID   string            `json:"meter_id"`
	MeterSlug string            `json:"meter_slug"`
	Period    usagePeriod       `json:"period"`
	Component billing.Component `json:"component" doc:"'usage' of the period, or 'adjustment' for late usage of a closed period"`
	Usage     metering.Decimal  `json:"usage" doc:"Usage of the whole period so far"`
	UnitPrice metering.Decimal  `json:"unit_price"`
	Amount    metering.Decimal  `json:"amount" doc:"Charge for the usage, rounded to the currency's minor unit. For an adjustment, the additional charge of the closed period"`
	Currency  string            `json:"currency"`

	Kind         lineKind          `json:"kind" doc:"Kind of the report with this line"`
	Number       int64             `json:"number" doc:"Sequence number of the report for this customer. For a statement, 'sequence' of the statement"`
	State        billing.State     `json:"state" doc:"State of the report"`
	Method       string            `json:"method,omitempty" doc:"How the provider adds up the number: usage_record, meter_delta, meter_window or meter_last for a quantity, pending_item for a charge with 'bills' set to 'amounts'. Otherwise absent" example:"meter_delta"`
	Target       string            `json:"target,omitempty" doc:"Object at the provider that receives the report: a subscription item, a meter or a subscription. own_invoice is an invoice that Odometer creates for the period. In a further billing schedule, a slash and the number of the schedule follow" example:"si_Na6dzxczY5fwHx"`
	Window       usagePeriod       `json:"window"` // the billing period, its part within the subscription period, or a window of the provider
	Quantity     metering.Decimal  `json:"quantity" doc:"Units that the provider has for this line after it accepts the report: the usage in 'window', rounded for the provider. Units reported to other connections, provider customers, subscription items, methods or subscription periods are deducted"`
	QuantitySent *metering.Decimal `json:"quantity_sent,omitempty" doc:"Number that was sent: 'quantity', or the increase of 'quantity' since the previous report. For a charge, an amount"`
	Response     string            `json:"response" doc:"Result of the report"`
}

type excludedMeter struct {
	MeterID   string `json:"meter_id"`
	MeterSlug string `json:"meter_slug"`
	Exclusion
}

type syncRun struct {
	ID           string              `json:"id"`
	Status       metering.SyncStatus `json:"status"`
	Trigger      metering.Trigger    `json:"trigger"`
	CustomerID   string              `json:"customer_id" example:"cus_42"`
	ExternalID   string              `json:"external_id" doc:"External ID of the customer"`
	CustomerName string              `json:"customer_name" doc:"Empty if the customer has no name"`
	Error        string              `json:"error" doc:"Reason and fix of a failed sync"`
	RequestedAt  time.Time           `json:"requested_at"`
	StartedAt    *time.Time          `json:"started_at"`
	FinishedAt   *time.Time          `json:"finished_at"`
	Lines        []syncLine          `json:"lines" doc:"Lines that the sync reported or that were already up to date"`
	Excluded     []excludedMeter     `json:"excluded" doc:"Meters that were not reported, with the reason"`
	StatusURL    string              `json:"status_url" doc:"Path of this sync, to poll"`
	Note         string              `json:"note,omitempty" doc:"Present if this request joined a sync that was already requested" example:"This request joined an earlier request for the customer that was still waiting. One sync answers both."`

	Reconciliations []unresolved `json:"reconciliations,omitempty" doc:"The customer's latest unresolved reconciliations: periods with different invoices or a last invoice that is not final. Only for a single sync"`
	*SyncProgress
}

// unresolved is a reconciliation that can need a decision by an operator.
type unresolved struct {
	Period    reconciledPeriod             `json:"period"`
	MeterID   string                       `json:"meter_id"`
	MeterSlug string                       `json:"meter_slug"`
	State     billing.ReconciliationState  `json:"state"`
	Reason    billing.ReconciliationReason `json:"reason,omitempty" doc:"Reason for the difference between the invoices and the closed period. Absent while 'state' is 'open'"`
	billing.Text
	Units      metering.Decimal  `json:"units" doc:"Units at the closing of the period, rounded for the provider. In a period that is billed in amounts, the charge at the closing"`
	Invoiced   *metering.Decimal `json:"invoiced,omitempty" doc:"Units on final invoices, or the amount in a period that is billed in amounts. Absent while 'state' is 'open'"`
	Difference *metering.Decimal `json:"difference,omitempty" doc:"'invoiced' less 'units'. Negative if the invoices bill less"`
}

// unresolvedShown is the maximum number of unresolved reconciliations in the response of a sync.
const unresolvedShown = 20

func (s *server) registerSyncs() {
	huma.Register(s.api, post("sync-billing", "/v1/billing/sync", BillingWrite, "Sync a customer with the billing provider",
		"Starts a workflow that reports unreported usage to the provider, and waits up to 25 seconds for it. No unit is billed twice, even "+
			"after a crash or a repeated request.\n\n"+
			"- 200: the sync has finished. Its `status` is `succeeded` or `failed`.\n"+
			"- 202: the sync is still running, or the customer is paused. Poll `status_url`."), s.syncBilling)
	s.describeStatus("/v1/billing/sync", "202", "Still running: read status_url")
	huma.Register(s.api, get("get-billing-sync", "/v1/billing/syncs/{id}", BillingRead, "Get a sync",
		"Returns the reported lines, the number of attempts, the last error, the time of the next attempt, and whether the customer is paused."), s.getSync)
	huma.Register(s.api, get("list-billing-syncs", "/v1/billing/syncs", BillingRead, "List syncs",
		"Syncs are listed newest first. `status` and `customer` filter the list."), s.listSyncs)
}

// addUnresolved adds the customer's latest unresolved reconciliations to a sync in a response.
func (s *server) addUnresolved(ctx context.Context, customer metering.CustomerID, shown *syncRun) error {
	list, err := s.Store.Reconciliations.Unresolved(ctx, principalOf(ctx).Tenant.ID, customer, unresolvedShown)
	for _, u := range list {
		one := unresolved{
			Period:  reconciledPeriod{u.PeriodID.String(), u.Period.Start.UTC(), u.Period.End.UTC()},
			MeterID: u.MeterID.String(), MeterSlug: u.MeterSlug, State: u.State, Reason: u.Reason, Text: u.Reason.Text(),
			Units: u.Units, Invoiced: u.Invoiced,
		}
		if u.Invoiced != nil {
			more := u.Invoiced.Sub(u.Units)
			one.Difference = &more
		}
		shown.Reconciliations = append(shown.Reconciliations, one)
	}
	return err
}

func showSync(run metering.Sync) syncRun {
	shown := syncRun{
		ID: run.ID.String(), Status: run.Status, Trigger: run.Trigger, CustomerID: run.CustomerID.String(), ExternalID: run.ExternalID, CustomerName: run.CustomerName, Error: run.Error,
		RequestedAt: run.RequestedAt.UTC(), StartedAt: run.StartedAt, FinishedAt: run.FinishedAt,
		Lines: []syncLine{}, Excluded: []excludedMeter{}, StatusURL: "/v1/billing/syncs/" + run.ID.String(),
	}
	for _, l := range run.Lines {
		shown.Lines = append(shown.Lines, syncLine{
			ReportID: l.ReportID.String(), Kind: lineKind(l.Kind), Number: l.Number, State: billing.State(l.State),
			MeterID: l.MeterID.String(), MeterSlug: l.MeterSlug, Period: usagePeriod{l.Period.Start.UTC(), l.Period.End.UTC()},
			Component: billing.Component(l.Component), Usage: l.Usage, UnitPrice: l.UnitPrice, Amount: l.Amount, Currency: l.Currency,
			Method: l.Method, Target: l.Target, Window: usagePeriod{l.Window.Start.UTC(), l.Window.End.UTC()},
			Quantity: l.Quantity, QuantitySent: l.Sent, Response: l.Response,
		})
	}
	for _, m := range run.Excluded {
		reason := billing.ExclusionReason{Code: billing.ExclusionCode(m.Code), Detail: m.Detail}
		shown.Excluded = append(shown.Excluded, excludedMeter{m.MeterID.String(), m.MeterSlug, showExclusion(reason)})
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

// joinedNote is the note in the response to a request that joined an earlier, waiting request.
const joinedNote = "This request joined an earlier request for the customer that was still waiting. One sync answers both."

// syncBilling requests a sync of the customer and waits for its result. The request is stored before the
// workflow starts, so that it survives a crash of this process. The request is withdrawn only if its workflow
// cannot be started.
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
	if err := s.startSync(ctx, who.Tenant.ID, c.ID); err != nil {
		s.withdrawSync(context.WithoutCancel(ctx), run)
		return nil, err
	}
	answer, err := s.awaitSync(ctx, run.ID)
	if err == nil && run.Joined {
		answer.Body.Note = joinedNote
	}
	return answer, err
}

// Maximum number of urgent runs per minute. Without a maximum, the runs that tenants start could use up the calls
// to providers, and scheduled syncs of all tenants would never run. Requested syncs and provider events are counted
// separately, so that many events at the start of a month do not delay requested syncs.
const (
	urgentRunsOfTenant = 60
	urgentRuns         = 300 // of all tenants
)

// takeUrgent counts a run of a kind, and reports whether the run is urgent.
func (s *server) takeUrgent(ctx context.Context, kind string, tenant metering.TenantID) bool {
	return s.minutes.take(ctx, kind+":"+tenant.String(), urgentRunsOfTenant).allowed && s.minutes.take(ctx, kind, urgentRuns).allowed
}

// startSync starts the run of a requested sync. The run precedes scheduled syncs if the tenant is below
// urgentRunsOfTenant and all tenants together are below urgentRuns. A request that joins an open run counts too.
func (s *server) startSync(ctx context.Context, tenant metering.TenantID, customer metering.CustomerID) error {
	return workflows.StartSyncCustomer(ctx, s.Temporal, tenant, customer, s.takeUrgent(ctx, "syncs", tenant))
}

// withdrawSync deletes the request of a sync that could not be started.
func (s *server) withdrawSync(ctx context.Context, run metering.Sync) {
	if err := s.Store.Syncs.Withdraw(ctx, principalOf(ctx).Tenant.ID, run.ID); err != nil {
		s.Log.WarnContext(ctx, "the API could not withdraw the sync request", "sync", run.ID, "error", err)
	}
}

// awaitSync returns 200 with the finished sync. It returns 202 after SyncWait, or earlier if the customer is
// paused or the process is about to stop.
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
		if run.Pause != nil {
			shown := showSync(run)
			shown.SyncProgress = progressOf(run, ledger.Tried{})
			return &syncOutput{http.StatusAccepted, shown}, nil
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
	ID string `path:"id" example:"0192b1a0-0000-7000-8000-000000000000"`
}

func (s *server) getSync(ctx context.Context, in *getSyncInput) (*syncOutput, error) {
	run, err := s.findSync(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	shown, err := s.showSyncProgress(ctx, run)
	if err == nil {
		err = s.addUnresolved(ctx, run.CustomerID, &shown)
	}
	return &syncOutput{http.StatusOK, shown}, err
}

func (s *server) findSync(ctx context.Context, text string) (metering.Sync, error) {
	id, err := uuid.Parse(text)
	if err != nil {
		return metering.Sync{}, metering.Errorf(metering.CodeNotFound, "there is no such sync")
	}
	return s.Store.Syncs.Get(ctx, principalOf(ctx).Tenant.ID, id)
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

// listSyncs lists syncs, newest first, without their lines.
func (s *server) listSyncs(ctx context.Context, in *listSyncsInput) (*listSyncsOutput, error) {
	filter := ledger.SyncFilter{Status: in.Status}
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
	runs, err := s.Store.Syncs.List(ctx, principalOf(ctx).Tenant.ID, filter, in.PageSize)
	if err != nil {
		return nil, err
	}
	show, err := s.syncConverter(ctx, runs.Items)
	if err != nil {
		return nil, err
	}
	return &listSyncsOutput{listOf(ctx, s, runs, show, func(r metering.Sync) syncCursor { return syncCursor{r.ID} })}, nil
}
