package stripe

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// reportKey is the metadata field of an invoice item that holds the id of the last report that set it.
const reportKey = "odometer_report"

// maxClockSkew is the maximum time by which our clock can be ahead of Stripe's clock.
const maxClockSkew = time.Hour

// InvoiceItem reports whether the customer has an invoice item, pending or invoiced, with a report's
// identifier. since is the time of the report's first attempt, by our clock. Stripe lists an accepted item
// immediately, so an item that is not found while no call is running was not accepted.
func (c *Client) InvoiceItem(ctx context.Context, key, customer, identifier string, since time.Time) (found bool, err error) {
	items, err := list[invoiceItem](ctx, c, key, "/v1/invoiceitems", query("customer", customer, "created[gte]", seconds(since.Add(-maxClockSkew))))
	if err != nil {
		return false, fmt.Errorf("list invoice items: %w", err)
	}
	return slices.ContainsFunc(items, func(i invoiceItem) bool { return i.Metadata[reportKey] == identifier }), nil
}

type invoiceItem struct {
	ID       string            `json:"id"`
	Invoice  reference         `json:"invoice"` // "": pending
	Metadata map[string]string `json:"metadata"`
}

func (i invoiceItem) id() string { return i.ID }
