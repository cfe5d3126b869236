package metering

import "time"

// ProviderKind is the type of a billing provider.
type ProviderKind string

// Kinds of the built-in providers.
const (
	Webhook ProviderKind = "webhook" // signed statements to any HTTPS endpoint
	Stripe  ProviderKind = "stripe"  // usage records and meter events
)

// Provider is a tenant's connection to the billing provider that bills its usage.
type Provider struct {
	ID           ConnectionID
	Kind         ProviderKind
	Statements   bool   // each report is a statement: the whole bill of a period
	Invoices     bool   // the provider's final invoices are the record of billed usage
	Account      string // account that the secret belongs to; "": the provider has no accounts
	Livemode     *bool  // whether reports are charged; nil: unknown
	Address      string // URL of a webhook; "" for other providers
	SealedSecret []byte
	LastFour     string // of the secret; the rest is never shown

	// Only for providers that send events. The secret verifies them.
	SealedWebhookSecret []byte
	WebhookLastFour     string

	// Only for providers with invoices.
	Mapping     map[string]string // from meter slugs to the provider's prices
	Bills       Bills             // for periods that begin at BillsSince or later
	BillsBefore Bills             // for earlier periods
	BillsSince  time.Time
	Text        InvoiceText // of invoice lines, when amounts are billed

	ValidatedAt time.Time
	CreatedAt   time.Time
}

// BillsQuantities reports whether the provider's own prices charge the units of new periods.
func (p Provider) BillsQuantities() bool { return !p.Statements && p.Bills != BillsAmounts }

// ProviderEvent is an event of a billing provider, reduced to the fields that identify its object.
type ProviderEvent struct {
	Connection ConnectionID // the connection that received the event
	EventID    string
	Kind       string // event type at the provider
	Invoice    bool   // about an invoice; otherwise about a subscription
	ObjectID   string
	Customer   string // id at the provider
	MadeAt     time.Time
}

// Bills is the form in which usage is billed on the invoices of a provider.
type Bills string

// Forms of usage on invoices.
const (
	BillsQuantities Bills = "quantities" // units, which the provider's prices charge
	BillsAmounts    Bills = "amounts"    // the charges, calculated by Odometer
)

// Values returns all forms.
func (Bills) Values() []Bills { return []Bills{BillsQuantities, BillsAmounts} }

// InvoiceText contains the product, tax and payment fields of the invoice lines and invoices that
// Odometer creates at a provider.
type InvoiceText struct {
	Product     string            `json:"product,omitempty"`      // for meters that are not in Products
	Products    map[string]string `json:"products,omitempty"`     // by the slug of the meter
	TaxBehavior string            `json:"tax_behavior,omitempty"` // a value of the provider; "": the provider's default
	TaxCode     string            `json:"tax_code,omitempty"`     // "": the tax code of the product

	// Only for invoices that Odometer creates.
	CollectionMethod string `json:"collection_method,omitempty"` // a value of the provider; "": charge automatically
	DaysUntilDue     int64  `json:"days_until_due,omitempty"`    // for invoices that are sent to the customer; 0: not sent
}

// ProductOf returns the product of a meter's lines, or "".
func (t InvoiceText) ProductOf(slug string) string {
	if product, has := t.Products[slug]; has {
		return product
	}
	return t.Product
}
