package stripe

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
	"github.com/odometer-metering/odometer/providers"
)

// About describes the usage that an invoice item charges for, in the item's metadata. After the ledger was
// restored from a backup, Odometer restores the charge from this metadata.
type About struct {
	MeterID metering.MeterID `json:"meter_id"`
	Closed  time.Time        `json:"closed"` // start of the period of the usage
	Target  time.Time        `json:"target"` // start of the period that bills the usage
	Units   metering.Decimal `json:"units"`  // total charged units, including earlier items
	Late    bool             `json:"late"`   // the usage arrived after its period was closed
}

// Metadata fields of About.
const (
	aboutMeter        = "odometer_meter"
	aboutClosed       = "odometer_closed"
	aboutTarget       = "odometer_target"
	aboutUnits        = "odometer_units"
	aboutAmount       = "odometer_amount" // in the smallest unit; a user can edit the item's own amount
	aboutLate         = "odometer_late"
	aboutSubscription = "odometer_subscription"
)

// metadata returns the metadata of the report's invoice item.
func (r Report) metadata() map[string]string {
	return r.About.metadata(r.Identifier, r.SubscriptionID, r.Value)
}

// metadata returns the metadata of an invoice item that a report has added to a subscription. It includes
// the fields of a, unless a is nil.
func (a *About) metadata(report, subscription string, amount metering.Decimal) map[string]string {
	all := map[string]string{reportKey: report}
	if a != nil {
		all[aboutMeter], all[aboutUnits], all[aboutSubscription] = strconv.FormatInt(int64(a.MeterID), 10), a.Units.String(), subscription
		all[aboutAmount] = amount.String()
		all[aboutClosed], all[aboutTarget], all[aboutLate] = seconds(a.Closed), seconds(a.Target), strconv.FormatBool(a.Late)
	}
	return all
}

// Charges lists the invoice items at Stripe, pending or invoiced, that Odometer has created for the customer since
// the given time, and decodes their charges.
func (p Provider) Charges(ctx context.Context, c providers.Credentials, customer string, since time.Time) (charges []billing.FoundCharge, err error) {
	items, err := list[chargedItem](ctx, p.client, c.Secret, "/v1/invoiceitems", query("customer", customer, "created[gte]", seconds(since.Add(-maxClockSkew))))
	if err != nil {
		return nil, advised(fmt.Errorf("list invoice items: %w", err))
	}
	for _, i := range items {
		if found, ours := i.charge(); ours {
			charges = append(charges, found)
		}
	}
	return charges, nil
}

// chargedItem is an invoice item with the fields from which charge decodes Odometer's charge.
type chargedItem struct {
	ID       string            `json:"id"`
	Currency string            `json:"currency"`
	Metadata map[string]string `json:"metadata"`
}

func (i chargedItem) id() string { return i.ID }

// charge decodes Odometer's charge from the item's metadata. ours is false if Odometer has not created the item.
func (i chargedItem) charge() (f billing.FoundCharge, ours bool) {
	id, err := uuid.Parse(i.Metadata[reportKey])
	meter, err1 := strconv.ParseInt(i.Metadata[aboutMeter], 10, 64)
	closed, err2 := strconv.ParseInt(i.Metadata[aboutClosed], 10, 64)
	target, err3 := strconv.ParseInt(i.Metadata[aboutTarget], 10, 64)
	units, err4 := metering.ParseDecimal(i.Metadata[aboutUnits])
	amount, err5 := metering.ParseDecimal(i.Metadata[aboutAmount])
	for _, failed := range []error{err, err1, err2, err3, err4, err5} {
		if failed != nil {
			return f, false
		}
	}
	currency := strings.ToUpper(i.Currency)
	f = billing.FoundCharge{
		ReportID: id, MeterID: metering.MeterID(meter), Subscription: i.Metadata[aboutSubscription], Closed: time.Unix(closed, 0).UTC(), Target: time.Unix(target, 0).UTC(),
		Late: i.Metadata[aboutLate] == strconv.FormatBool(true), Units: units, Amount: Amount(amount, currency), Currency: currency,
	}
	if i.Metadata[lineKey] != "" {
		f.Method, f.Object = PendingItem, i.ID
	}
	return f, true
}
