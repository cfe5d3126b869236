package metering

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
