package metering

import "time"

// AuditEntry says who changed what. It never holds a secret or a field's content.
type AuditEntry struct {
	ID       AuditID
	At       time.Time
	Actor    Actor
	Action   string // "meter.create"
	Resource string // the internal id of what changed
	Reason   string // why, in the actor's words; "": they were not asked
}
