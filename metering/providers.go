package metering

import "time"

// ProviderKind is how usage reaches a billing provider.
type ProviderKind string

// The kinds that tenants can choose.
const (
	Webhook ProviderKind = "webhook" // signed statements to any HTTPS endpoint
	Stripe  ProviderKind = "stripe"  // usage records and meter events
)

// Values are all that tenants can choose.
func (ProviderKind) Values() []ProviderKind {
	return []ProviderKind{Webhook, Stripe}
}

// Provider is where a tenant's usage is billed.
type Provider struct {
	ID           ConnectionID
	Kind         ProviderKind
	Statements   bool   // it takes the bill of a period in one report
	Account      string // what makes two settings the same destination: the URL of a webhook, or whom the secret belongs to
	SealedSecret []byte
	LastFour     string // all of the secret that is ever shown

	// Of Stripe only.
	SealedWebhookSecret []byte
	WebhookLastFour     string
	Mapping             map[string]string // of meter slugs to prices

	ValidatedAt time.Time
	CreatedAt   time.Time
}
