package metering

import "time"

// ProviderKind is how usage reaches a billing provider.
type ProviderKind string

// Webhook sends signed snapshots to any HTTPS endpoint.
const Webhook ProviderKind = "webhook"

// Provider is where a tenant's usage is billed.
type Provider struct {
	ID           ProviderID
	Kind         ProviderKind
	Account      string // what makes two settings the same destination: the URL of a webhook
	SealedSecret []byte
	LastFour     string // all of the secret that is ever shown
	ValidatedAt  time.Time
	CreatedAt    time.Time
}
