package metering

import "time"

// ProviderKind is how usage reaches a billing provider.
type ProviderKind string

// The kinds that come with the service.
const (
	Webhook ProviderKind = "webhook" // signed statements to any HTTPS endpoint
	Stripe  ProviderKind = "stripe"  // usage records and meter events
)

// Provider is where a tenant's usage is billed.
type Provider struct {
	ID           ConnectionID
	Kind         ProviderKind
	Statements   bool   // it takes the bill of a period in one report
	Invoices     bool   // its final invoices say what is billed
	Account      string // whom the secret belongs to; "": nobody, it is whoever is at the address
	Livemode     *bool  // whether what is reported is charged; nil: the provider does not tell
	Address      string // the URL that is called, where the tenant sets it
	SealedSecret []byte
	LastFour     string // all of the secret that is ever shown

	// Of Stripe only.
	SealedWebhookSecret []byte
	WebhookLastFour     string
	Mapping             map[string]string // of meter slugs to prices

	// Of one that makes invoices.
	Bills       Bills // in what periods are billed that begin from BillsSince on
	BillsBefore Bills // those that began before
	BillsSince  time.Time
	Text        InvoiceText // of the lines that it is given where it bills amounts

	ValidatedAt time.Time
	CreatedAt   time.Time
}
