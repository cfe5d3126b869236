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

// Bills is in what a provider that makes invoices bills.
type Bills string

// What it bills in.
const (
	BillsQuantities Bills = "quantities" // units go to its prices, which charge them
	BillsAmounts    Bills = "amounts"    // what they come to here goes to its invoices
)

// Values are all that a tenant may choose.
func (Bills) Values() []Bills { return []Bills{BillsQuantities, BillsAmounts} }

// InvoiceText is what the lines that go to a provider's invoices say there, and the
// invoices that are made here.
type InvoiceText struct {
	Product     string            `json:"product,omitempty"`      // of meters that are not in Products
	Products    map[string]string `json:"products,omitempty"`     // of meters, by slug
	TaxBehavior string            `json:"tax_behavior,omitempty"` // in the provider's words; "": its own default
	TaxCode     string            `json:"tax_code,omitempty"`     // "": that of the product

	// Of invoices that are made here.
	CollectionMethod string `json:"collection_method,omitempty"` // in the provider's words; "": they are charged automatically
	DaysUntilDue     int64  `json:"days_until_due,omitempty"`    // of those that are sent; 0: of none
}

// ProductOf is the product that a meter's lines name; "": none.
func (t InvoiceText) ProductOf(slug string) string {
	if product, has := t.Products[slug]; has {
		return product
	}
	return t.Product
}
