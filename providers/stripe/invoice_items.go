package stripe

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// reportKey is the metadata of an invoice item that says which report made it.
const reportKey = "odometer_report"

// clocks is how far ours may be ahead of Stripe's.
const clocks = time.Hour

// InvoiceItem says whether the customer has an invoice item with a report's
// identifier, pending or invoiced, that was made since the report was first
// sent, by our clock. Stripe lists at once what it took, so what is not found
// when no call is under way was not taken.
func (c *Client) InvoiceItem(ctx context.Context, key, customer, identifier string, since time.Time) (found bool, err error) {
	items, err := list[invoiceItem](ctx, c, key, "/v1/invoiceitems", query("customer", customer, "created[gte]", seconds(since.Add(-clocks))))
	if err != nil {
		return false, fmt.Errorf("list invoice items: %w", err)
	}
	return slices.ContainsFunc(items, func(i invoiceItem) bool { return i.Metadata[reportKey] == identifier }), nil
}

type invoiceItem struct {
	ID       string            `json:"id"`
	Invoice  reference         `json:"invoice"` // "": it is pending
	Metadata map[string]string `json:"metadata"`
}

func (i invoiceItem) id() string { return i.ID }
