package providers

import (
	"time"

	"github.com/odometer-metering/odometer/metering"
)

// Setting is a field of the provider's configuration. The API accepts it under its name, and shows it
// unless it is a secret.
type Setting struct {
	Name      string
	Use       Use
	Doc       string
	InRequest string        // rule for requests that set it, appended to Doc in the API documentation; "": none
	Values    []string      // permitted values; nil: any value
	MaxLength int           // maximum length in characters; for a mapping, maximum number of meters
	Max       int64         // maximum of a number (the minimum is 1); 0: not a number
	Make      func() string // generates a secret if the request has none; nil: not generated
}

// Location returns the location of the setting in a request.
func (s Setting) Location() string { return "body." + s.Name }

// Use is the purpose of a setting, which decides how it is stored. A provider has at most one setting per
// use.
type Use string

// The uses of settings.
const (
	Address     Use = "address"      // URL to call; a provider with this setting has no accounts
	CallSecret  Use = "secret"       // authenticates calls to the provider
	EventSecret Use = "event_secret" // verifies the signatures of the provider's events
	Mapping     Use = "mapping"      // meter slugs to the provider's prices
	Bills       Use = "bills"        // bill quantities or amounts
	Product     Use = "product"      // product of invoice lines; only for billing in amounts, as are the uses below
	Products    Use = "products"     // meter slugs to the provider's products
	TaxBehavior Use = "tax_behavior"
	TaxCode     Use = "tax_code"

	CollectionMethod Use = "collection_method" // of standalone invoices
	DaysUntilDue     Use = "days_until_due"
)

// Maps reports whether the value of the setting is a map by meter slug.
func (u Use) Maps() bool { return u == Mapping || u == Products }

// Shown reports whether the API returns the saved value of the setting.
func (u Use) Shown() bool { return u != CallSecret && u != EventSecret }

// OfLines reports whether the setting is copied to invoice lines or to standalone invoices.
func (u Use) OfLines() bool {
	switch u {
	case Product, Products, TaxBehavior, TaxCode, CollectionMethod, DaysUntilDue:
		return true
	}
	return false
}

// Settings holds the settings that a tenant saves, except for the secrets. Address has passed
// Guard.CheckURL.
type Settings struct {
	Address string
	Mapping map[string]string
	Bills   metering.Bills // "": the saved value
	Text    metering.InvoiceText
	Now     time.Time
}

// Secrets holds the secrets that a tenant saves. They are encrypted at rest.
type Secrets struct {
	Call  string
	Event string
}

// Identity is the account that credentials belong to. The test mode and the live mode of an account
// are two identities.
type Identity struct {
	Account string // "": the provider has no accounts, only an address
	Mode    Mode
}

// Mode is the mode of a provider's account. Only live mode charges customers. Usage that was reported in test
// mode is never treated as billed in another mode.
type Mode string

// Modes. "" is unknown.
const (
	Live Mode = "live"
	Test Mode = "test"
)

// Setting returns the provider's setting for a use, if there is one.
func (d Description) Setting(use Use) (setting Setting, has bool) {
	for _, s := range d.Settings {
		if s.Use == use {
			return s, true
		}
	}
	return Setting{}, false
}

// Unreached replaces the message of err with the given one if the provider was down while its settings were validated.
// It returns any other error unchanged.
func Unreached(err error, message string) error {
	if metering.CodeOf(err) != metering.CodeProviderDown {
		return err
	}
	return metering.Errorf(metering.CodeProviderDown, "%s", message).Because(err)
}
