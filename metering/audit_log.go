package metering

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// AuditEntry is a change, a request without a change or a refused request, with its actor. It never contains a secret.
type AuditEntry struct {
	ID        AuditID // counts from 1 for each tenant
	At        time.Time
	Actor     Actor
	Action    string // "meter.create"
	Resource  string // internal id of the changed object
	Reason    string // stated by the actor; "": not requested
	Address   string // IP address of the request; "": no request
	RequestID string // "": no request

	// The changed fields before and after; nil: not recorded.
	Before, After json.RawMessage
}

// AuditHead identifies the state of a tenant's audit log: the last entry, and a MAC that depends on all
// entries up to it.
type AuditHead struct {
	Last AuditID
	MAC  []byte
}

// String returns the head in the form that odometer audit verify prints: "42:" and the MAC in hexadecimal.
func (h AuditHead) String() string {
	return fmt.Sprintf("%d:%s", int64(h.Last), hex.EncodeToString(h.MAC))
}

// ParseAuditHead parses the result of AuditHead.String.
func ParseAuditHead(text string) (h AuditHead, err error) {
	var mac string
	if _, err = fmt.Sscanf(text, "%d:%s", &h.Last, &mac); err == nil {
		h.MAC, err = hex.DecodeString(mac)
	}
	if err != nil || h.Last < 1 {
		return h, errors.New("-expect must be a head that odometer audit verify printed: an entry's number, a colon and the entry's MAC in hexadecimal")
	}
	return h, nil
}

// Actor is the caller that requests a change, such as "key_12", "sec_3" or "member_12", or one of the constants
// Operator, Stranger and Scheduler.
type Actor string

// Operator is the actor of changes by the odometer command.
const Operator Actor = "operator"

// Stranger is the actor of requests without a valid credential.
const Stranger Actor = "stranger"

// Scheduler is the actor of scheduled changes.
const Scheduler Actor = "schedule"

// Asked contains the author of an update to a running workflow, and the reason. The author's name is not
// verified, because the Temporal server has no user accounts.
type Asked struct {
	By     string `json:"by"`     // 1 to 64 letters, digits, ".", "_" and "-": a user's name, or an Actor
	Reason string `json:"reason"` // 1 to 500 characters; visible to every viewer of the workflow run
}

const maxReason = 500

var userPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// secretPattern matches keys and tokens of Odometer and of other services.
var secretPattern = regexp.MustCompile(`\b(svc_(adm|rw|ro|ink)_|whsec_|(sk|rk|pk)_(live|test)_)[A-Za-z0-9+/]{8}|\beyJ[A-Za-z0-9_-]{8,}\.|(?i:\b(bearer|basic|hmac)\s+\S{16})`)

// HoldsSecret reports whether a text seems to contain a key or a token.
func HoldsSecret(text string) bool { return secretPattern.MatchString(text) }

// Validate returns an error if the name or the reason is missing, or contains a secret.
func (a Asked) Validate() error {
	if !userPattern.MatchString(a.By) || HoldsSecret(a.By) {
		return Invalid("by", "must be the operator's user name: 1 to 64 letters, digits, '.', '_' and '-', not an e-mail")
	}
	return ValidReason("reason", a.Reason)
}

// ValidReason returns an error if the reason is empty, is too long or contains a secret. location names the
// field in the error.
func ValidReason(location, reason string) error {
	switch {
	case strings.TrimSpace(reason) == "":
		return Invalid(location, "must not be empty; state the reason in your own words")
	case !utf8.ValidString(reason) || strings.ContainsFunc(reason, func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }):
		return Invalid(location, "must be UTF-8 without control characters")
	case utf8.RuneCountInString(reason) > maxReason:
		return Invalid(location, "must have at most %d characters", maxReason)
	case HoldsSecret(reason):
		return Invalid(location, "must not contain a key, a secret or a token")
	}
	return nil
}
