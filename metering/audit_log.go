package metering

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"
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
