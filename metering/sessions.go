package metering

import (
	"time"

	"github.com/google/uuid"
)

// Session is one sign-in of a member, from which its token was made. Its id is
// random: a token cannot be made by guessing one, even with the signing key.
type Session struct {
	ID        uuid.UUID
	TenantID  TenantID
	MemberID  MemberID
	CreatedAt time.Time
	ExpiresAt time.Time
	EndedAt   *time.Time
}

// Live says whether the session is accepted at now.
func (s Session) Live(now time.Time) bool { return s.EndedAt == nil && now.Before(s.ExpiresAt) }
