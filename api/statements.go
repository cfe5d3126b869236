package api

import (
	"context"
	"encoding/hex"
	"math"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db/ledger"
	"github.com/odometer-metering/odometer/metering"
)

// StatementLine is the amount of a period for one meter, with its breakdown.
type StatementLine struct {
	MeterID       string              `json:"meter_id"`
	MeterSlug     string              `json:"meter_slug"`
	Usage         metering.Decimal    `json:"usage" doc:"Usage so far. For a closed period, the usage at its closing"`
	EventCount    int64               `json:"event_count"`
	PriceVersion  int                 `json:"price_version" doc:"Version of the meter's price. 0 without a price or if the provider's own price applies"`
	PriceSource   billing.PriceSource `json:"price_source,omitempty" doc:"Where the price is set: the customer's own price, the price in the customer's plan or the meter's own price. Absent if price_version is 0" example:"meter"`
	ProviderPrice string              `json:"provider_price,omitempty" doc:"Id of the provider's own price. Absent if Odometer's price applies" example:"price_1Q2"`
	Charge        metering.Decimal    `json:"charge" doc:"Charge for the usage, rounded to the currency's minor unit"`
	Amount        metering.Decimal    `json:"amount" doc:"Charge plus the adjustments in this currency that are billed in this period. For an open period, amounts billed by other connections are deducted from the charge. For a closed period, only the charge that is billed with the period counts"`
	Currency      string              `json:"currency" example:"USD"`
	Steps         []step              `json:"steps" doc:"Steps that compute the amount. The last step is the amount"`
	Billed        bool                `json:"billed" doc:"Whether the closed period is billed through a provider. The provider may accept the reports later"`
	LateUsage     metering.Decimal    `json:"late_usage" doc:"Usage that arrived after the closing"`
	LateAmount    metering.Decimal    `json:"late_amount" doc:"Additional charge of this period for late usage. If late_policy is 'adjust' and this period was billed, another period bills it"`
	LateSteps     []step              `json:"late_steps" doc:"Steps that compute late_amount. The last step is the result. Empty for an open period"`
	Digest        *digest             `json:"digest,omitempty"` // absent if the period is open, or until the hourly maintenance after its close
}

// digest is a hash of the customer's events in a closed period that have the event type of a meter, including events
// that the meter's filters exclude. It proves which events there were at the close.
type digest struct {
	Algorithm  string `json:"algorithm" doc:"Algorithm of the hash, as described in docs/api/bills.md" example:"sha256-events-1"`
	Hash       string `json:"hash" doc:"Hash in hexadecimal digits" example:"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`
	EventCount int64  `json:"event_count" doc:"Number of events that the hash covers"`
}

func showDigest(digests map[metering.MeterID]ledger.Digest, meter metering.MeterID) *digest {
	d, made := digests[meter]
	if !made {
		return nil
	}
	return &digest{d.Algorithm, hex.EncodeToString(d.Value), d.Events}
}

func showStatementLine(l billing.StatementLine, digests map[metering.MeterID]ledger.Digest) StatementLine {
	return StatementLine{
		MeterID: l.MeterID.String(), MeterSlug: l.MeterSlug, Usage: l.Usage, EventCount: l.Events, PriceVersion: l.PriceVersion, PriceSource: l.Source, ProviderPrice: priceID(l.Price),
		Charge: l.Charge, Amount: l.Amount, Currency: l.Currency, Steps: showSteps(l.Working), Billed: l.Billed,
		LateUsage: l.LateUsage, LateAmount: l.LateCharge, LateSteps: showSteps(l.LateWorking),
		Digest: showDigest(digests, l.MeterID),
	}
}

type periodStatement struct {
	CustomerID string `json:"customer_id" example:"cus_42"`
	ExternalID string `json:"external_id" doc:"External ID of the customer"`
	PeriodHead
	Lines       []StatementLine       `json:"lines" doc:"One line for each meter, except during its first backfill"`
	Adjustments []closedPeriod        `json:"adjustments" doc:"Adjustments of closed periods that are billed in this period, oldest first"`
	Totals      []statementTotal      `json:"totals" doc:"Totals, one for each currency"`
	Reports     List[statementReport] `json:"reports"` // reports that bill the period: its statements, its quantities, and the charges that belong to it
}

type closedPeriod struct {
	Period usagePeriod      `json:"period"`
	Lines  []adjustmentLine `json:"lines"`
}

type adjustmentLine struct {
	MeterID   string           `json:"meter_id"`
	MeterSlug string           `json:"meter_slug"`
	Reason    string           `json:"reason" example:"late usage"`
	Quantity  metering.Decimal `json:"quantity" doc:"Additional units"`
	Amount    metering.Decimal `json:"amount" doc:"Additional charge of the closed period"`
	Currency  string           `json:"currency" example:"USD"`
	Steps     []step           `json:"steps" doc:"Steps that compute the amount. After the period that bills the adjustment has closed, the steps contain the reported amounts"`
}

type statementTotal struct {
	Currency    string           `json:"currency" example:"USD"`
	Amount      metering.Decimal `json:"amount" doc:"Sum of the lines and adjustments"`
	Adjustments metering.Decimal `json:"adjustments" doc:"Part of 'amount' that comes from adjustments"`
}

type statementReport struct {
	ReportID         string                `json:"report_id"`
	Number           int64                 `json:"number" doc:"Sequence number of the report for this customer. For a statement, 'sequence' of the statement"`
	Kind             billing.Kind          `json:"kind" doc:"Kind of report:\n- 'statement': the bill of the period.\n- 'quantity': units of one meter.\n- 'charge': an amount.\n- invoice_action: finalizes an invoice that Odometer created. Such a report has no lines."`
	State            billing.State         `json:"state"`
	Provider         metering.ProviderKind `json:"provider" doc:"Type of the provider" example:"webhook"`
	ConnectionID     string                `json:"connection_id" example:"con_1"`
	ProviderCustomer string                `json:"provider_customer,omitempty" doc:"Id of the customer at the provider" example:"cus_NffrFeUfNV2Hib"`
	Method           string                `json:"method,omitempty" doc:"How the provider adds up the number: usage_record, meter_delta, meter_window or meter_last for a quantity, pending_item for a charge with 'bills' set to 'amounts'. Otherwise absent" example:"meter_delta"`
	Target           string                `json:"target,omitempty" doc:"Object at the provider that receives the report" example:"si_Na6dzxczY5fwHx"`
	Window           usagePeriod           `json:"window"`
	QuantitySent     *metering.Decimal     `json:"quantity_sent,omitempty" doc:"Number that was sent to the provider. For a charge, an amount of money"`
	Lines            []statementReportLine `json:"lines"`
	Attempts         int                   `json:"attempts"`
	Response         string                `json:"response" doc:"Result of the report"`
	RecordedAt       time.Time             `json:"recorded_at" doc:"Time at which the report was stored"`
	FirstSentAt      *time.Time            `json:"first_sent_at"`
	ProviderTime     *time.Time            `json:"provider_time" doc:"Timestamp of the report at the provider. Null if the report has no timestamp"`
	DecidedAt        *time.Time            `json:"decided_at" doc:"Time at which the outcome became known"`
}

type statementReportLine struct {
	MeterID   string            `json:"meter_id"`
	MeterSlug string            `json:"meter_slug"`
	Component billing.Component `json:"component"`
	Period    usagePeriod       `json:"period"`
	Usage     metering.Decimal  `json:"usage" doc:"Usage of the whole period at the time when the report was stored"`
	Quantity  metering.Decimal  `json:"quantity" doc:"Units that the provider has after it accepts the report"`
	Amount    metering.Decimal  `json:"amount" doc:"Part of the charge that the report bills"`
	Currency  string            `json:"currency" example:"USD"`
}

type getStatementInput struct {
	Paging
	Period string `path:"period" maxLength:"64" doc:"Id of the billing period" example:"per_42"`
}

type getStatementOutput struct{ Body periodStatement }

type reportCursor struct {
	Before int64 `json:"before"`
}

// maxReports is the maximum number of reports per page. It is low, because a report of the kind statement has
// a line for each meter.
const maxReports = 100

func (s *server) registerStatements() {
	huma.Register(s.api, get("get-statement", "/v1/billing/statements/{period}", BillingRead, "Get the bill of a billing period",
		"Returns every line with its breakdown, the adjustments that are billed in the period, and the totals by currency. "+
			"`reports` is a page of the reports that bill the period.\n\n"+
			"A period gets its id when it is stored: by a sync of the customer or in the background, at the latest before it closes."), s.getStatement)
}

// getStatement returns the complete bill of a period, with one page of its reports.
func (s *server) getStatement(ctx context.Context, in *getStatementInput) (*getStatementOutput, error) {
	id, _ := metering.ParsePeriodID(in.Period) // 0 on error; no period has this ID
	cursor := reportCursor{math.MaxInt64}
	if err := s.readPageToken(ctx, in.PageToken, &cursor); err != nil {
		return nil, err
	}
	size := min(in.PageSize, maxReports)
	statement, err := s.Store.Ledger.Statement(ctx, principalOf(ctx).Tenant.ID, id, ledger.ReportPage{Before: cursor.Before, Limit: size}, s.Now())
	if err != nil {
		return nil, withLocation("path.period", err)
	}
	digests, err := s.Store.Ledger.Digests(ctx, principalOf(ctx).Tenant.ID, id)
	if err != nil {
		return nil, err
	}
	shown := showStatement(statement, digests)
	shown.Reports = listOf(ctx, s, statement.Reports, showStatementReport, func(r ledger.PeriodReport) reportCursor { return reportCursor{r.Number} })
	return &getStatementOutput{shown}, nil
}

func showStatement(p ledger.PeriodStatement, digests map[metering.MeterID]ledger.Digest) periodStatement {
	shown := periodStatement{
		CustomerID: p.CustomerID.String(), ExternalID: p.ExternalID, PeriodHead: showPeriodHead(p.Statement),
		Lines: []StatementLine{}, Adjustments: showAdjustments(p.Adjustments), Totals: []statementTotal{},
	}
	for _, l := range p.Lines {
		shown.Lines = append(shown.Lines, showStatementLine(l, digests))
	}
	for _, t := range p.Totals() {
		shown.Totals = append(shown.Totals, statementTotal(t))
	}
	return shown
}

// showAdjustments groups consecutive adjustments of the same closed period.
func showAdjustments(adjustments []billing.Adjustment) []closedPeriod {
	shown := []closedPeriod{}
	for i, a := range adjustments {
		if i == 0 || !a.Closed.Start.Equal(adjustments[i-1].Closed.Start) {
			shown = append(shown, closedPeriod{Period: usagePeriod{a.Closed.Start.UTC(), a.Closed.End.UTC()}})
		}
		last := &shown[len(shown)-1]
		last.Lines = append(last.Lines, adjustmentLine{
			MeterID: a.MeterID.String(), MeterSlug: a.MeterSlug, Reason: a.Reason, Quantity: a.Quantity, Amount: a.Amount, Currency: a.Currency,
			Steps: showSteps(a.Working),
		})
	}
	return shown
}

func showStatementReport(r ledger.PeriodReport) statementReport {
	shown := statementReport{
		ReportID: r.ID.String(), Number: r.Number, Kind: r.Kind, State: r.State, Provider: r.Provider, ConnectionID: r.Connection.String(),
		ProviderCustomer: r.Customer, Method: string(r.Method), Target: r.Target, Window: usagePeriod{r.Window.Start.UTC(), r.Window.End.UTC()},
		QuantitySent: r.Quantity, Lines: []statementReportLine{}, Attempts: r.Attempts, Response: r.Response,
		RecordedAt: r.RecordedAt.UTC(), FirstSentAt: r.FirstSentAt, ProviderTime: r.ProviderTime, DecidedAt: r.DecidedAt,
	}
	for _, l := range r.Lines {
		shown.Lines = append(shown.Lines, statementReportLine{
			MeterID: l.MeterID.String(), MeterSlug: l.MeterSlug, Component: l.Component(), Period: usagePeriod{l.Of.Start.UTC(), l.Of.End.UTC()},
			Usage: l.Usage, Quantity: l.Quantity, Amount: l.Amount, Currency: l.Currency,
		})
	}
	return shown
}
