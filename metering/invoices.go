package metering

import "time"

// Invoice is a provider's.
type Invoice struct {
	ID           string
	Account      string
	Subscription string
	Status       string
	Reason       string
	Currency     string
	Total        Decimal
	Usage        Decimal // of it what the customer's meters made
	Period       Range   // that ended with it
	CreatedAt    time.Time
	FinalizedAt  time.Time // zero while it is a draft
}

// Cycle says whether a period's end made the invoice: then it bills the
// period's usage.
func (i Invoice) Cycle() bool { return i.Reason == "subscription_cycle" }
