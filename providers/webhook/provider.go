package webhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// Deliverer sends a message and interprets the response, as Client does.
type Deliverer interface {
	Deliver(ctx context.Context, url string, secrets []string, id string, now time.Time, body []byte) (Answer, error)
}

// Provider sends statements to a tenant's webhook. The receiver stores the statement with the highest sequence
// for each period, so Provider has nothing to read, find or count there.
type Provider struct{ client Deliverer }

// NewProvider returns the provider that uses the client.
func NewProvider(client Deliverer) Provider { return Provider{client} }

// Describe returns the properties of the webhook provider.
func (Provider) Describe() providers.Description {
	return providers.Description{Kind: metering.Webhook, Name: "the webhook", Settings: settings, Statements: true, AtOnce: 5, Timeout: Timeout}
}

var settings = []providers.Setting{
	{Name: "url", Use: providers.Address, MaxLength: 2048, Doc: "Only for the type 'webhook'. URL that receives the signed statements (Standard Webhooks)"},
	{Name: "secret", Use: providers.CallSecret, MaxLength: 128, Make: NewSecret, Doc: "Only for the type 'webhook'. Signing secret: 'whsec_' followed by 24 to 64 bytes in base64. Created if omitted and none is saved"},
}

// Validate delivers a signed ping. The identity is empty, because a webhook has no accounts.
func (p Provider) Validate(ctx context.Context, in providers.Settings, secrets providers.Secrets) (providers.Identity, error) {
	if err := CheckSecret("body.secret", secrets.Call); err != nil {
		return providers.Identity{}, err
	}
	if err := ping(ctx, p.client, in.Address, secrets.Call, in.Now); err != nil {
		return providers.Identity{}, providers.Unreached(err, pingFailure(err)+"; it must answer a signed ping with 2xx")
	}
	return providers.Identity{}, nil
}

// pingFailure describes a failed ping without any text from the receiver.
func pingFailure(err error) string {
	if cause := errors.Unwrap(err); cause != nil {
		return "could not connect: " + providers.Redact(cause).Error()
	}
	return err.Error()
}

// Read returns an empty state, because a webhook has none.
func (Provider) Read(context.Context, providers.Credentials, providers.Question) (billing.Side, error) {
	return billing.Side{}, nil
}

// Send delivers a statement.
func (p Provider) Send(ctx context.Context, c providers.Credentials, s providers.Sending) providers.Outcome {
	answer, err := p.client.Deliver(ctx, c.Address, []string{c.Secret}, s.ReportID.String(), s.Now, s.Body)
	if err != nil {
		return providers.Outcome{Err: providers.Advised(err, answer.RetryAfter, answer.AboutMessage())}
	}
	return providers.Outcome{State: billing.Accepted, Answer: fmt.Sprintf("the webhook answered %d", answer.Status)}
}

// Find always returns an empty result, because a webhook cannot be asked for statements. A statement is sent again
// until the receiver answers with 2xx.
func (Provider) Find(context.Context, providers.Credentials, providers.Sending, providers.Place, metering.Decimal) (providers.Found, error) {
	return providers.Found{}, nil
}

// Count returns CodeNotFound, because a webhook counts nothing.
func (Provider) Count(context.Context, providers.Credentials, providers.Place) (metering.Decimal, error) {
	return metering.Decimal{}, metering.Errorf(metering.CodeNotFound, "a webhook counts nothing")
}

// Kinds of messages to a receiver of statements.
const (
	UsageStatement metering.MessageKind = "usage.statement"
	Ping           metering.MessageKind = "ping" // tests the receiver before it is saved
)

// Tried is the data of a ping message, which has no fields.
type Tried struct{}

// Statement is a customer's bill for one period so far. It is cumulative: the statement with the highest
// sequence replaces all earlier ones of the same stream and period.
type Statement struct {
	TenantID           string           `json:"tenant_id"`
	CustomerExternalID string           `json:"customer_external_id"`
	Stream             int              `json:"stream" doc:"Billing schedule of the period. 0, except for a subscription with different periods"`
	Period             StatementPeriod  `json:"period"`
	LedgerEpoch        int64            `json:"ledger_epoch" doc:"Number that rises when the database is restored from a backup. 'sequence' rises at the same time"`
	Sequence           int64            `json:"sequence" doc:"Number of the statement. The number rises with every statement of the customer"`
	Currency           string           `json:"currency" doc:"Currency of the lines. If the lines have several currencies, the tenant's currency"`
	Meters             []StatementMeter `json:"meters"`
	Adjustments        []Adjustment     `json:"adjustments" doc:"Usage that arrived after its period was closed. 'period' is the closed period"`
}

// StatementPeriod is the billing period of a statement, including Start and excluding End.
type StatementPeriod struct {
	Start time.Time `json:"start"`
	End   time.Time `json:"end"`
}

// StatementMeter is one meter of a statement.
type StatementMeter struct {
	MeterID   string           `json:"meter_id"`
	MeterSlug string           `json:"meter_slug"`
	Usage     metering.Decimal `json:"usage"`
	UnitPrice metering.Decimal `json:"unit_price"`
	Amount    metering.Decimal `json:"amount" doc:"Amount, rounded to the currency's minor unit"`
	Currency  string           `json:"currency"`
	Steps     []StatementStep  `json:"steps,omitempty" doc:"Breakdown of 'amount', as in GET /v1/billing/explain. Absent in a line that repeats an earlier statement"`
}

// StatementStep is one step of the breakdown of an amount.
type StatementStep struct {
	Name         string            `json:"name" doc:"Name of the step, as in GET /v1/billing/explain" example:"overage_charge"`
	Amount       metering.Decimal  `json:"amount" doc:"Exact amount in 'unit'"`
	Unit         string            `json:"unit" doc:"'units', 'packages', 'percent', or a currency code" example:"USD"`
	RoundedTo    *int32            `json:"rounded_to,omitempty" doc:"Decimals to which the amount is rounded, half to even. For 'charge', the decimals of the currency. For reported_units and elsewhere_units, the decimals that the provider accepts. For a charge that contains a quotient with infinitely many decimals, at least 16. Otherwise absent"`
	EventCount   *int64            `json:"event_count,omitempty" doc:"Number of counted events. Present only in the steps 'usage', late_usage, total_usage, fixed_fees, matched_units, dimension_units and unrated_units. total_usage, matched_units and unrated_units have the sum of their parts"`
	PriceVersion int               `json:"price_version,omitempty" doc:"Version of the price with this value. Present only in steps with a field of the price"`
	Dimension    json.RawMessage   `json:"dimension,omitempty" doc:"Values by property. Present in the step dimension_units, unless it sums up the units with other or unknown values"`
	RateNumber   int               `json:"dimension_price,omitempty" doc:"Number of the price in the list of prices by dimension, from 1. Present only in the step dimension_charge" example:"1"`
	Tier         int               `json:"tier,omitempty" doc:"Number of the price's tier, from 1. Present only in steps of a tier. Each tier of flat_fees is a tier of unit_charges" example:"1"`
	Above        *metering.Decimal `json:"above,omitempty" doc:"Number of charged_units below the tier. Present only in the step 'tier', except in the first tier"`
	UpTo         *metering.Decimal `json:"up_to,omitempty" doc:"Last of the charged_units in the tier. Present only in the step 'tier', except in the last tier of the price"`
	Steps        []StatementStep   `json:"steps,omitempty" doc:"Parts of the amount"`
}

// stepsOf converts the steps of a breakdown for the statement.
func stepsOf(working []billing.Step) (steps []StatementStep) {
	for _, s := range working {
		step := StatementStep{Name: s.Name, Amount: s.Amount, Unit: s.Unit, RoundedTo: s.Digits, PriceVersion: s.PriceVersion, Tier: s.Tier, Above: s.Above, UpTo: s.UpTo, RateNumber: s.Rate, Dimension: s.Dimension, Steps: stepsOf(s.Of)}
		if s.Counted() {
			step.EventCount = &s.Events
		}
		steps = append(steps, step)
	}
	return steps
}

// Adjustment is the amount that late usage adds to a closed period. Like a StatementMeter, it is cumulative
// over the statements of the period that bills it.
type Adjustment struct {
	Period StatementPeriod `json:"period"`
	StatementMeter
}

// Frame encodes a statement as a message.
func (Provider) Frame(m billing.Message) (billing.Framed, error) {
	statement := Statement{
		TenantID: m.TenantID.String(), CustomerExternalID: m.CustomerExternalID, Stream: m.Stream, Period: periodOf(m.Of),
		LedgerEpoch: m.Epoch, Sequence: m.Sequence, Currency: m.Currency, Meters: []StatementMeter{}, Adjustments: []Adjustment{},
	}
	for _, l := range m.Lines {
		line := StatementMeter{l.MeterID.String(), l.MeterSlug, l.Quantity, l.UnitPrice, l.Amount, l.Currency, stepsOf(l.Working)}
		if l.Closed.IsZero() {
			statement.Meters = append(statement.Meters, line)
			continue
		}
		statement.Adjustments = append(statement.Adjustments, Adjustment{periodOf(m.PeriodFrom(l.Closed)), line})
	}
	var message bytes.Buffer
	encoder := json.NewEncoder(&message)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(metering.MessageOf[Statement]{Type: UsageStatement, Timestamp: metering.Instant(m.Now), Data: statement})
	if err != nil {
		return billing.Framed{}, fmt.Errorf("encode statement: %w", err)
	}
	return billing.Framed{Body: bytes.TrimSuffix(message.Bytes(), []byte("\n"))}, nil
}

// periodOf returns a range as the period of a statement, in UTC.
func periodOf(r metering.Range) StatementPeriod { return StatementPeriod{r.Start.UTC(), r.End.UTC()} }
