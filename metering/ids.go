package metering

import (
	"strconv"
	"strings"
)

// Identifiers are numbers in the code and prefixed strings in the API ("cus_42"). The types and prefixes
// prevent confusion between kinds of identifiers, and between identifiers and counts.
type (
	TenantID        int64
	CustomerID      int64
	MeterID         int64
	MeterVersionID  int64
	PeriodID        int64
	ConnectionID    int64
	ProviderEventID int64
	AuditID         int64
	MemberID        int64
	PersonID        int64 // never shown, so that a tenant cannot see its members' other memberships
	InvitationID    int64
	PlanID          int64
	EndpointID      int64
	RotationID      int64
	HoldID          int64
	AlertID         int64
	FiringID        int64
	QuotaID         int64
)

// CredentialID is the id of a credential. The secret of a webhook has the webhook's number.
type CredentialID struct {
	Kind   CredentialKind
	Number int64
}

// WholeTenant replaces the customer's id if a total or a row covers the whole tenant.
const WholeTenant CustomerID = 0

func (id TenantID) String() string     { return "ten_" + strconv.FormatInt(int64(id), 10) }
func (id CustomerID) String() string   { return "cus_" + strconv.FormatInt(int64(id), 10) }
func (id MeterID) String() string      { return "mtr_" + strconv.FormatInt(int64(id), 10) }
func (id ConnectionID) String() string { return "con_" + strconv.FormatInt(int64(id), 10) }
func (id PeriodID) String() string     { return "per_" + strconv.FormatInt(int64(id), 10) }
func (id PlanID) String() string       { return "pln_" + strconv.FormatInt(int64(id), 10) }
func (id MemberID) String() string     { return "member_" + strconv.FormatInt(int64(id), 10) }
func (id InvitationID) String() string { return "inv_" + strconv.FormatInt(int64(id), 10) }
func (id EndpointID) String() string   { return "whk_" + strconv.FormatInt(int64(id), 10) }
func (id HoldID) String() string       { return "hld_" + strconv.FormatInt(int64(id), 10) }
func (id QuotaID) String() string      { return "quo_" + strconv.FormatInt(int64(id), 10) }

func (id AlertID) String() string  { return "alt_" + strconv.FormatInt(int64(id), 10) }
func (id FiringID) String() string { return "fir_" + strconv.FormatInt(int64(id), 10) }
func (id AuditID) String() string  { return "aud_" + strconv.FormatInt(int64(id), 10) }

func (id CredentialID) String() string {
	return credentialWords[id.Kind].prefix + strconv.FormatInt(id.Number, 10)
}

// ParseTenantID parses the API form, "ten_42".
func ParseTenantID(s string) (TenantID, bool) {
	n, ok := parseID(s, "ten_")
	return TenantID(n), ok
}

// ParseCredentialID parses the API form, "key_42", "sec_42" or "whk_42".
func ParseCredentialID(s string) (CredentialID, bool) {
	for kind, words := range credentialWords {
		if n, ok := parseID(s, words.prefix); ok {
			return CredentialID{kind, n}, true
		}
	}
	return CredentialID{}, false
}

// ParseMemberID parses the API form, "member_42".
func ParseMemberID(s string) (MemberID, bool) {
	n, ok := parseID(s, "member_")
	return MemberID(n), ok
}

// ParseInvitationID parses the API form, "inv_42".
func ParseInvitationID(s string) (InvitationID, bool) {
	n, ok := parseID(s, "inv_")
	return InvitationID(n), ok
}

// ParseEndpointID parses the API form, "whk_42".
func ParseEndpointID(s string) (EndpointID, bool) {
	n, ok := parseID(s, "whk_")
	return EndpointID(n), ok
}

// ParsePeriodID parses the API form, "per_42".
func ParsePeriodID(s string) (PeriodID, bool) {
	n, ok := parseID(s, "per_")
	return PeriodID(n), ok
}

// ParseCustomerID parses the API form, "cus_42".
func ParseCustomerID(s string) (CustomerID, bool) {
	n, ok := parseID(s, "cus_")
	return CustomerID(n), ok
}

// ParseHoldID parses the API form, "hld_42".
func ParseHoldID(s string) (HoldID, bool) {
	n, ok := parseID(s, "hld_")
	return HoldID(n), ok
}

// ParseAlertID parses the API form, "alt_42".
func ParseAlertID(s string) (AlertID, bool) {
	n, ok := parseID(s, "alt_")
	return AlertID(n), ok
}

// ParseQuotaID parses the API form, "quo_42".
func ParseQuotaID(s string) (QuotaID, bool) {
	n, ok := parseID(s, "quo_")
	return QuotaID(n), ok
}

func parseID(s, prefix string) (int64, bool) {
	digits, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n > 0 && strconv.FormatInt(n, 10) == digits
}
