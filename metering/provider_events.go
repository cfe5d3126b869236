package metering

import "time"

// ProviderEvent is what a billing provider told us of: only what it takes to
// look up the rest.
type ProviderEvent struct {
	Account  string
	EventID  string
	Kind     string
	ObjectID string
	Customer string // at the provider
	MadeAt   time.Time
}
