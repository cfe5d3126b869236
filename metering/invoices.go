package metering

import (
	"slices"
	"time"

	"github.com/google/uuid"
)

// Invoice is a provider's.
type Invoice struct {
	ID           string
	Connection   ConnectionID // with which it was read
	Customer     string       // at the provider
	Subscription string
	Status       string
	Void         bool   // nobody has to pay it
	Reason       string // why the provider made it, in its own words
	Renewal      bool   // a period's end made it: it bills the period's usage
	Currency     string
	Total        Decimal
	Lines        []InvoiceLine
	Period       Range // that ended with it
	CreatedAt    time.Time
	FinalizedAt  time.Time // zero while it is a draft
}

// InvoiceLine is one line of an invoice, before discounts and tax.
type InvoiceLine struct {
	ID        string     // at the provider
	MeterID   MeterID    // whose usage it bills; 0: none's
	Item      string     // of the subscription; "" where no item made it
	Price     string     // at the provider
	ReportID  *uuid.UUID // that put it there; nil: none did
	Proration bool
	Quantity  Decimal // units
	Amount    Decimal
	Period    Range
}

// EndedSubscription is a subscription at a provider that was cancelled before its
// last period was over.
type EndedSubscription struct {
	ID         string
	Connection ConnectionID // with which it was read
	Customer   string       // at the provider
	LastPeriod Range        // up to its end
}

// Same says whether an invoice still says what it said when it was read before.
func (in Invoice) Same(before Invoice) bool {
	return in.Status == before.Status && in.Void == before.Void && in.Total.Equal(before.Total) &&
		in.FinalizedAt.Equal(before.FinalizedAt) && slices.EqualFunc(in.Lines, before.Lines, InvoiceLine.same)
}

func (l InvoiceLine) same(o InvoiceLine) bool {
	sameReport := l.ReportID == nil && o.ReportID == nil || l.ReportID != nil && o.ReportID != nil && *l.ReportID == *o.ReportID
	return l.ID == o.ID && l.MeterID == o.MeterID && l.Item == o.Item && l.Price == o.Price && sameReport && l.Proration == o.Proration &&
		l.Quantity.Equal(o.Quantity) && l.Amount.Equal(o.Amount) && l.Period.Start.Equal(o.Period.Start) && l.Period.End.Equal(o.Period.End)
}
