package metering

import "time"

// Invoice is a provider's.
type Invoice struct {
	ID           string
	Connection   ConnectionID // with which it was read
	Subscription string
	Status       string
	Reason       string // why the provider made it, in its own words
	Renewal      bool   // a period's end made it: it bills the period's usage
	Currency     string
	Total        Decimal
	Usage        Decimal // of it what the customer's meters made
	Period       Range   // that ended with it
	CreatedAt    time.Time
	FinalizedAt  time.Time // zero while it is a draft
}
