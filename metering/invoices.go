package metering

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// Invoice is an invoice of a billing provider.
type Invoice struct {
	ID           string
	Connection   ConnectionID // the connection with which the invoice was read
	Customer     string       // at the provider
	Subscription string
	Status       string
	Void         bool   // no payment is due
	Reason       string // the reason for which the provider created the invoice, in the provider's terms
	Renewal      bool   // created at the end of a period, for the period's usage
	Currency     string
	Total        Decimal
	Lines        []InvoiceLine
	Period       Range // the period that ended when the invoice was created
	CreatedAt    time.Time
	FinalizedAt  time.Time // zero while the invoice is a draft
}

// InvoiceLine is one line of an invoice, before discounts and tax.
type InvoiceLine struct {
	ID        string     // at the provider
	MeterID   MeterID    // the meter that the line bills; 0: no meter
	Item      string     // subscription item; "": not from a subscription item
	Price     string     // at the provider
	ReportID  *uuid.UUID // the report that created the line; nil: no report
	Proration bool
	Quantity  Decimal // units
	Amount    Decimal
	Period    Range
}

// EndedSubscription is a subscription at a provider that was canceled before the end of its last period.
type EndedSubscription struct {
	ID         string
	Connection ConnectionID // the connection with which the subscription was read
	Customer   string       // at the provider
	LastPeriod Range        // ends with the subscription
}

// Same reports whether the invoice has the same content as an earlier version of it.
func (in Invoice) Same(before Invoice) bool {
	return in.Status == before.Status && in.Void == before.Void && in.Total.Equal(before.Total) &&
		in.FinalizedAt.Equal(before.FinalizedAt) && slices.EqualFunc(in.Lines, before.Lines, InvoiceLine.same)
}

// same reports whether two invoice lines have the same content.
func (l InvoiceLine) same(o InvoiceLine) bool {
	sameReport := l.ReportID == nil && o.ReportID == nil || l.ReportID != nil && o.ReportID != nil && *l.ReportID == *o.ReportID
	return l.ID == o.ID && l.MeterID == o.MeterID && l.Item == o.Item && l.Price == o.Price && sameReport && l.Proration == o.Proration &&
		l.Quantity.Equal(o.Quantity) && l.Amount.Equal(o.Amount) && l.Period.Start.Equal(o.Period.Start) && l.Period.End.Equal(o.Period.End)
}
