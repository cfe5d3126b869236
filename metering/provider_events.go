package metering

import "time"

// ProviderEvent is what a billing provider told us of: only what it takes to
// look up the rest.
type ProviderEvent struct {
	Connection ConnectionID // that it came for
	EventID    string
	Kind       string // the provider's word
	Invoice    bool   // it is about an invoice, else about a subscription
	ObjectID   string
	Customer   string // at the provider
	MadeAt     time.Time
}
