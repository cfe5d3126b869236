package providers

import (
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Setting is one of those that a tenant saves of a provider. The API takes it,
// and shows what is no secret of it, under its name.
type Setting struct {
	Name      string
	Use       Use
	Doc       string
	InRequest string        // rule for requests that set it, added to Doc in their documentation; "": none
	Values    []string      // that it may have; nil: any
	MaxLength int           // of a mapping: how many meters it may have
	Max       int64         // of a number, from 1 on; 0: it is none
	Make      func() string // makes a secret where none is given; nil: none is made
}

// Location is where a request has the setting.
func (s Setting) Location() string { return "body." + s.Name }

// Use is what a setting is for, and so how it is kept. A provider has one
// setting of each use at most.
type Use string

// The uses of settings.
const (
	Address     Use = "address"      // the URL that is called; who is there has no account
	CallSecret  Use = "secret"       // what calls are made with
	EventSecret Use = "event_secret" // what the provider signs its events with
	Mapping     Use = "mapping"      // meter slugs to the provider's prices
	Bills       Use = "bills"        // in what it bills
	Product     Use = "product"      // of the lines that are charged as amounts, like the uses after it
	Products    Use = "products"     // meter slugs to the provider's products
	TaxBehavior Use = "tax_behavior"
	TaxCode     Use = "tax_code"

	CollectionMethod Use = "collection_method" // of invoices that are made here
	DaysUntilDue     Use = "days_until_due"
)

// Maps says whether the setting maps meter slugs.
func (u Use) Maps() bool { return u == Mapping || u == Products }

// Shown says whether the setting is shown as it was saved.
func (u Use) Shown() bool { return u != CallSecret && u != EventSecret }

// OfLines says whether the setting is what lines say, and the invoices that are made here.
func (u Use) OfLines() bool {
	switch u {
	case Product, Products, TaxBehavior, TaxCode, CollectionMethod, DaysUntilDue:
		return true
	}
	return false
}

// Settings are what a tenant wants to save, but for the secrets. That the URL
// may be called has been checked.
type Settings struct {
	Address string
	Mapping map[string]string
	Bills   metering.Bills // "": as it is saved
	Text    metering.InvoiceText
	Now     time.Time
}

// Secrets are kept sealed.
type Secrets struct {
	Call  string
	Event string
}

// Identity is whom credentials belong to. The same account in another mode is
// another one.
type Identity struct {
	Account string // "": nobody, it is whoever is at the address
	Mode    Mode
}

// Mode says whether what is reported is charged. What was reported in test mode
// never counts as billed in another.
type Mode string

// The modes; "" is not known.
const (
	Live Mode = "live"
	Test Mode = "test"
)

// Setting returns the setting of a use, if the provider has one.
func (d Description) Setting(use Use) (setting Setting, has bool) {
	for _, s := range d.Settings {
		if s.Use == use {
			return s, true
		}
	}
	return Setting{}, false
}

// Unreached says what did not happen where a provider could not be reached to
// validate its settings; any other error stays as it is.
func Unreached(err error, what string) error {
	if metering.CodeOf(err) != metering.CodeProviderDown {
		return err
	}
	return metering.Errorf(metering.CodeProviderDown, "%s", what).Because(err)
}
