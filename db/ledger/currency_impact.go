package ledger

import (
	"slices"

	"github.com/odometer-metering/odometer/billing"
	"github.com/odometer-metering/odometer/metering"
)

// CurrencyImpact is a change of the currency in which customers are charged.
type CurrencyImpact struct {
	billing.CurrencyChange
	Customers int
}

// refuseCurrency returns CodeInvalid if p changes the currency of begun periods in which another owner's price
// applies so far. The end of an own price is not refused.
func (i Impact) refuseCurrency(p billing.Price) error {
	at := slices.IndexFunc(i.Currencies, func(c CurrencyImpact) bool { return c.Begun })
	if at < 0 || p.Inherits {
		return nil
	}
	switch currency := i.Currencies[at].From; {
	case p.CustomerID != 0:
		return metering.Invalid("body.currency", "must be %s: the customer's own price of the meter charges billing periods that have begun, and the customer is billed in %s",
			currency, currency)
	case p.PlanID != 0:
		return metering.Invalid("body.currency", "must be %s: the plan's first price of the meter charges billing periods that have begun, and customers with the plan are billed in %s",
			currency, currency)
	}
	return nil
}

// keepsCurrency reports whether the change is a price of a meter or plan that follows a version of the same price
// in the same currency. Such a price changes the currency of no charge.
func (c *catalogComparison) keepsCurrency() bool {
	p := c.change.price
	previous, _ := billing.PriceAt(c.before.prices[p.MeterID], p.PlanID, p.EffectiveFrom)
	return p.KeepsCurrency(previous)
}

// addCurrency adds a change of one customer's currency.
func (c *catalogComparison) addCurrency(change billing.CurrencyChange) {
	key := [2]string{change.From, change.To}
	in, known := c.currencies[key]
	if !known {
		in = &CurrencyImpact{CurrencyChange: change}
		c.currencies[key] = in
	}
	in.Begun = in.Begun || change.Begun
	in.Customers++
}
