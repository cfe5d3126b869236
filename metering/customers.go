package metering

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode/utf8"
)

// Customer is a party whose usage is tracked, named by its tenant's ExternalID.
type Customer struct {
	ID                CustomerID
	TenantID          TenantID
	ExternalID        string
	Name              string
	BillingProviderID *string // the customer at the billing provider
	Metadata          json.RawMessage
	CreatedAt         time.Time
	ArchivedAt        time.Time // zero: it is not archived
	ErasedAt          time.Time // zero: it is not erased
}

// Validate checks what a client may choose.
func (c Customer) Validate() error {
	if err := validText("body.external_id", c.ExternalID); err != nil {
		return err
	}
	if len(c.Name) > maxTextBytes || strings.ContainsRune(c.Name, 0) || !utf8.ValidString(c.Name) {
		return Invalid("body.name", "must be at most %d bytes of UTF-8 without NUL", maxTextBytes)
	}
	if c.BillingProviderID != nil {
		if err := validText("body.billing_provider_id", *c.BillingProviderID); err != nil {
			return err
		}
	}
	if len(c.Metadata) == 0 {
		return nil
	}
	clean, rejection := judgeProperties(c.Metadata)
	if rejection != nil {
		return Invalid("body.metadata", "%s", rejection.Message)
	}
	if bytes.Count(clean, []byte(lostText)) > bytes.Count(c.Metadata, []byte(lostText)) {
		return Invalid("body.metadata", "must be UTF-8") // a lone surrogate, which the database refuses
	}
	return nil
}
