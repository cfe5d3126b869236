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

// AuditEntry says who changed what. It never holds a secret.
type AuditEntry struct {
	ID        AuditID // 1, 2, 3, … of a tenant
	At        time.Time
	Actor     Actor
	Action    string // "meter.create"
	Resource  string // the internal id of what changed
	Reason    string // why, in the actor's words; "": they were not asked
	Address   string // where the request came from; "": it was none
	RequestID string // the same

	// The fields that were changed, as they were and as they are; nil: none is told.
	Before, After json.RawMessage
}

// AuditHead is where a tenant's audit log ends: its last entry, and a MAC that
// depends on every entry until then.
type AuditHead struct {
	Last AuditID
	MAC  []byte
}

// String is how a head is noted.
func (h AuditHead) String() string {
	return fmt.Sprintf("%d:%s", int64(h.Last), hex.EncodeToString(h.MAC))
}

// ParseAuditHead reads what a head was noted as, "42:" and its MAC in hexadecimals.
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

// Actor is who asked for a change: "key_12", "sec_3", "member_12", or
// "operator" at the command line.
type Actor string

// Operator is whoever runs the odometer command itself.
const Operator Actor = "operator"

// Stranger is whoever has not proved who they are.
const Stranger Actor = "stranger"

// Scheduler is the service itself, when it is time.
const Scheduler Actor = "schedule"

// Asked is who asks something of a run, and why. Nobody has checked who it is:
// the Temporal server knows no users.
type Asked struct {
	By     string `json:"by"`     // 1 to 64 letters, digits, ".", "_" and "-": a user's name, or an Actor
	Reason string `json:"reason"` // in their words, 1 to 500 characters; it is plain text to whoever sees the run
}

const maxReason = 500

var userPattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// secretPattern is what keys and tokens look like, ours and others'.
var secretPattern = regexp.MustCompile(`\b(svc_(adm|rw|ro|ink)_|whsec_|(sk|rk|pk)_(live|test)_)[A-Za-z0-9+/]{8}|\beyJ[A-Za-z0-9_-]{8,}\.|(?i:\b(bearer|basic|hmac)\s+\S{16})`)

// HoldsSecret says whether a text looks as if there were a key or token in it.
func HoldsSecret(text string) bool { return secretPattern.MatchString(text) }

// Validate refuses what does not say who asks and why, or says a secret.
func (a Asked) Validate() error {
	if !userPattern.MatchString(a.By) || HoldsSecret(a.By) {
		return Invalid("by", "must be the operator's user name: 1 to 64 letters, digits, '.', '_' and '-', not an e-mail")
	}
	return ValidReason("reason", a.Reason)
}

// ValidReason refuses a reason that says nothing, or a secret. location is its field.
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
