package api

import (
	"context"
	"encoding/hex"
	"math"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/db"
	"github.com/odometer-metering/odometer/metering"
)

// StatementLine is what a period comes to for one meter, with the working.
type StatementLine struct {
	MeterID       string           `json:"meter_id"`
	MeterSlug     string           `json:"meter_slug"`
	Usage         metering.Decimal `json:"usage" doc:"So far; of a closed period, what it was closed at"`
	EventCount    int64            `json:"event_count"`
	PriceVersion  int              `json:"price_version" doc:"0 where the meter has no price, or the provider's own is charged"`
	ProviderPrice string           `json:"provider_price,omitempty" doc:"The id of the provider's own price, where that is charged" example:"price_1Q2"`
	Charge        metering.Decimal `json:"charge" doc:"For the usage, rounded to the currency's minor unit"`
	Amount        metering.Decimal `json:"amount" doc:"The charge, of an open period less what was billed elsewhere, and the adjustments in this currency that the period carries"`
	Currency      string           `json:"currency" example:"USD"`
	Steps         []step           `json:"steps" doc:"The working; its last step is the amount"`
	Billed        bool             `json:"billed" doc:"Whether the provider had accepted it when it was closed"`
	LateUsage     metering.Decimal `json:"late_usage" doc:"What arrived after the closing"`
	LateAmount    metering.Decimal `json:"late_amount" doc:"Additional charge from late usage, whichever period carries it"`
	LateSteps     []step           `json:"late_steps" doc:"The working of late_amount, which is its last step; of an open period there is none"`
	Digest        *digest          `json:"digest,omitempty"` // absent: the period is open, or was closed within the hour
}

// digest proves which events a closed period's meter came to.
type digest struct {
	Algorithm  string `json:"algorithm" doc:"How the digest is computed: docs/api/bills.md has the steps of each algorithm" example:"sha256-events-1"`
	Hash       string `json:"hash" doc:"In hexadecimal digits" example:"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`
	EventCount int64  `json:"event_count" doc:"How many events it is of"`
}

func showDigest(digests map[metering.MeterID]db.Digest, meter metering.MeterID) *digest {
	d, made := digests[meter]
	if !made {
		return nil
	}
	return &digest{d.Algorithm, hex.EncodeToString(d.Value), d.Events}
}

func showStatementLine(l billing.StatementLine, digests map[metering.MeterID]db.Digest) StatementLine {
	return StatementLine{
		MeterID: l.MeterID.String(), MeterSlug: l.MeterSlug, Usage: l.Usage, EventCount: l.Events, PriceVersion: l.PriceVersion, ProviderPrice: priceID(l.Price),
		Charge: l.Charge, Amount: l.Amount, Currency: l.Currency, Steps: showSteps(l.Working), Billed: l.Billed,
		LateUsage: l.LateUsage, LateAmount: l.LateCharge, LateSteps: showSteps(l.LateWorking),
		Digest: showDigest(digests, l.MeterID),
	}
}

type periodStatement struct {
	CustomerID string `json:"customer_id" example:"cus_42"`
	ExternalID string `json:"external_id" doc:"The customer's"`
	PeriodHead
	Lines       []StatementLine       `json:"lines" doc:"One for each meter. One whose past is still being counted is left out"`
	Adjustments []closedPeriod        `json:"adjustments" doc:"What the period carries of others that are closed, oldest first"`
	Totals      []statementTotal      `json:"totals" doc:"One for each currency"`
	Reports     List[statementReport] `json:"reports"` // by which the period is billed: its statements and quantities, and the charges that go with it
}

type closedPeriod struct {
	Period usagePeriod      `json:"period"`
	Lines  []adjustmentLine `json:"lines"`
}

type adjustmentLine struct {
	MeterID   string           `json:"meter_id"`
	MeterSlug string           `json:"meter_slug"`
	Reason    string           `json:"reason" example:"late usage"`
	Quantity  metering.Decimal `json:"quantity" doc:"The units that it adds"`
	Amount    metering.Decimal `json:"amount" doc:"What it adds to the closed period's charge"`
	Currency  string           `json:"currency" example:"USD"`
	Steps     []step           `json:"steps" doc:"The working of amount; where the period that carries it is closed too, what each series was reported"`
}

type statementTotal struct {
	Currency    string           `json:"currency" example:"USD"`
	Amount      metering.Decimal `json:"amount" doc:"Of the lines, and of the adjustments"`
	Adjustments metering.Decimal `json:"adjustments" doc:"Of amount, what the adjustments are"`
}

type statementReport struct {
	ReportID         string                `json:"report_id"`
	Number           int64                 `json:"number" doc:"In the order of the customer's reports; a statement's sequence"`
	Kind             billing.Kind          `json:"kind"`
	State            billing.State         `json:"state"`
	Provider         metering.ProviderKind `json:"provider" doc:"The type of the provider" example:"webhook"`
	ConnectionID     string                `json:"connection_id" example:"con_1"`
	ProviderCustomer string                `json:"provider_customer,omitempty" doc:"The customer there" example:"cus_NffrFeUfNV2Hib"`
	Method           string                `json:"method,omitempty" doc:"Of a quantity: the provider's way of reporting it" example:"meter_event"`
	Target           string                `json:"target,omitempty" doc:"What adds it up at the provider" example:"si_Na6dzxczY5fwHx"`
	Window           usagePeriod           `json:"window"`
	QuantitySent     *metering.Decimal     `json:"quantity_sent,omitempty" doc:"Of a quantity the number that went out, of a charge the money"`
	Lines            []statementReportLine `json:"lines"`
	Attempts         int                   `json:"attempts"`
	Response         string                `json:"response" doc:"What came of it"`
	RecordedAt       time.Time             `json:"recorded_at" doc:"When it was written down"`
	FirstSentAt      *time.Time            `json:"first_sent_at"`
	ProviderTime     *time.Time            `json:"provider_time" doc:"The timestamp that it has at the provider, where it has one"`
	DecidedAt        *time.Time            `json:"decided_at" doc:"When its outcome became known"`
}

type statementReportLine struct {
	MeterID   string            `json:"meter_id"`
	MeterSlug string            `json:"meter_slug"`
	Component billing.Component `json:"component"`
	Period    usagePeriod       `json:"period"`
	Usage     metering.Decimal  `json:"usage" doc:"Of the whole period then"`
	Quantity  metering.Decimal  `json:"quantity" doc:"What the provider has of it once the report is accepted"`
	Amount    metering.Decimal  `json:"amount" doc:"What of the charge is billed there"`
	Currency  string            `json:"currency" example:"USD"`
}

type getStatementInput struct {
	Paging
	Period string `path:"period" maxLength:"64" doc:"The period's id" example:"per_42"`
}

type getStatementOutput struct{ Body periodStatement }

type reportCursor struct {
	Before int64 `json:"before"`
}

// maxReports on a page: a statement has a line for each meter.
const maxReports = 100

// getStatement shows the whole bill of a period; its pages are of the reports.
func (s *server) getStatement(ctx context.Context, in *getStatementInput) (*getStatementOutput, error) {
	id, _ := metering.ParsePeriodID(in.Period) // else 0, which no period has
	cursor := reportCursor{math.MaxInt64}
	if err := s.readPageToken(ctx, in.PageToken, &cursor); err != nil {
		return nil, err
	}
	size := min(in.PageSize, maxReports)
	statement, err := s.Store.Ledger.Statement(ctx, principalOf(ctx).Tenant.ID, id, db.ReportPage{Before: cursor.Before, Limit: size}, s.Now())
	if err != nil {
		return nil, naming("path.period", err)
	}
	digests, err := s.Store.Ledger.Digests(ctx, principalOf(ctx).Tenant.ID, id)
	if err != nil {
		return nil, err
	}
	shown := showStatement(statement, digests)
	shown.Reports = listOf(ctx, s, statement.Reports, showStatementReport, func(r db.PeriodReport) reportCursor { return reportCursor{r.Number} })
	return &getStatementOutput{shown}, nil
}

func showStatement(p db.PeriodStatement, digests map[metering.MeterID]db.Digest) periodStatement {
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

// showAdjustments puts those of one closed period together, which follow one another.
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

func showStatementReport(r db.PeriodReport) statementReport {
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
