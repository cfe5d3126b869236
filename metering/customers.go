package metering

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Customer is a party with tracked usage, identified by the tenant's ExternalID.
type Customer struct {
	ID                CustomerID
	TenantID          TenantID
	ExternalID        string
	Name              string
	BillingProviderID *string // id of the customer at the billing provider; nil: not linked
	Metadata          json.RawMessage
	CreatedAt         time.Time
	ArchivedAt        time.Time // zero: not archived
	ErasedAt          time.Time // zero: not erased
}

// ErasedName returns the text that replaces the names of an erased customer. No other customer can have this
// ExternalID, and an event with this customer_id is rejected.
func ErasedName(id CustomerID) string { return fmt.Sprintf("erased-%d", int64(id)) }

var erasedName = regexp.MustCompile(`^erased-[0-9]+$`)

// customerRule returns the rule that a customer's ExternalID breaks, or "".
func customerRule(externalID string) string {
	if strings.HasPrefix(externalID, "erased-") && erasedName.MatchString(externalID) {
		return "must not be 'erased-' followed by a number: such names are reserved for erased customers"
	}
	return textRule(externalID)
}

// Validate returns an error if a field that a client can set is not valid.
func (c Customer) Validate() error {
	if rule := customerRule(c.ExternalID); rule != "" {
		return Invalid("body.external_id", "%s", rule)
	}
	if err := ValidName(c.Name); err != nil {
		return err
	}
	if c.BillingProviderID != nil {
		if err := validText("body.billing_provider_id", *c.BillingProviderID); err != nil {
			return err
		}
	}
	if len(c.Metadata) == 0 {
		return nil
	}
	if rejection := judgeProperties(c.Metadata); rejection != nil {
		return Invalid("body.metadata", "%s", rejection.Message)
	}
	return nil
}
