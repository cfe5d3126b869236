package metering

import "time"

// RotationID names one exchange of an API key for a new one.
type RotationID int64

// RotationStatus is where a rotation stands in its life.
type RotationStatus string

const (
	RotationPending   RotationStatus = "pending"
	RotationActivated RotationStatus = "activated" // the new key is valid, the old one revoked
	RotationWithdrawn RotationStatus = "withdrawn" // nobody waited for it any longer
	RotationRefused   RotationStatus = "refused"   // the old key was not valid any more
)

// Values are all that a rotation may be.
func (RotationStatus) Values() []RotationStatus {
	return []RotationStatus{RotationPending, RotationActivated, RotationWithdrawn, RotationRefused}
}

// Rotation is the exchange of an API key for a new one of the same name, scope
// and expiry. The new key is in nobody's hands but those of who asked for it.
type Rotation struct {
	ID             RotationID
	OldKeyID       KeyID
	NewKeyID       *KeyID // of an activated one
	LastFour       string // of the new key
	IdempotencyKey string // "" when the client sent none
	Status         RotationStatus
	PendingUntil   time.Time
}
